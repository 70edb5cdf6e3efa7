# engine/clock.sh - see common.sh
