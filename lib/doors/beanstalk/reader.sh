# doors/beanstalk/reader.sh - what the child runs that reads from the client while a connection waits. It may have read nothing else of flatq

# client_reader_run - read a line from the client (4) and store it in $client_line; at its end, store also a line `end`. Then wake the connection
client_reader_run() {
  exec 2>/dev/null
  trap - EXIT
  trap '' HUP INT TERM
  client_code=0
  # Not at the `read`: a redirection that fails is no end of input
  command exec <&4 || exit 2
  IFS= read -r client_text || client_code=1
  [ $client_code -eq 0 ] || client_text="$client_text
end"
  # In one piece, and exclusively. If it cannot be stored, end the connection. One that ignores the signal ends when it finds neither the file nor this
  # child (client_is_gone)
  set -C
  printf '%s\n' "$client_text" >"$client_line" || { rm -rf "$client_line"; kill -TERM "${owner%-*}"; exit 2; }
  [ ! -p "$wait_fifo" ] || printf '\n' 1<>"$wait_fifo"
  exit $client_code
}

part='doors/beanstalk/reader'
