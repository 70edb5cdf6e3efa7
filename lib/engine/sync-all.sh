# engine/sync-all.sh - see spool.sh
