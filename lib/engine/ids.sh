# engine/ids.sh - see push.sh
