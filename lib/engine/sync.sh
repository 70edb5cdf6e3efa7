# engine/sync.sh - see spool.sh
