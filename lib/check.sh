queue_after_boot() { :; }
