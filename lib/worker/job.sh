# worker/job.sh - run the command for one message
#
# Order: 1 renew the lease if the command might begin late; 2 decode the body into a file, and open
#        it; 3 start the job, a shell in a session of its own; unlink the file; 4 the job names
#        itself to the helper; 5 it runs the command; 6 it tells the worker the code; 7 if the
#        command has failed, keep the end of its standard error in QUEUE/why/ID.
# Crash: before 4, the helper, or the next worker, removes the file. From 4 on, the helper kills the
#        job with all that it has started.

need engine/clock engine/process engine/state worker/helper

# job_run COMMAND ... - set job_code to its exit code, job_reason to why it failed or empty
job_run() {
  job_reason=untried job_code=0 job_file=''
  # The one before has ended: let the shell forget it
  [ -z "$job_last" ] || wait "$job_last"
  job_last=
  helper_begin
  job_lease && job_body
  job_code=$?
  case $job_code in
  0) ;;
  # work_settle will see that it is no longer ours
  66) return 0 ;;
  *) return $job_code ;;
  esac
  [ "$job_reason" = untried ] || return 0
  job_pipe=
  [ -z "$work_keep" ] || job_keeps
  export FLATQ_ID="$id" FLATQ_QUEUE="$queue" FLATQ_TRIES="$slip_tries" \
    FLATQ_REASON="$job_file.why.flatq"
  job_end=999999999999 job_late='' job_aborted='' job_gone=''
  clock_read
  [ -z "$work_limit" ] || { clock_add "$work_limit" "$now"; job_end=$later; }
  # What has its number and has started later is another process
  clock_add 1 "$now"
  job_since=$later
  job_line="$job_since $queue $job_slip $job_lease $job_end"
  job_start "$@"
  exec 6<&-
  # The job may be killed before it has told its line
  helper_tell
  rm -f "$job_file" "$job_file.flatq"
  # RACE: the signal came before job_pid was set
  [ -z "$work_abort" ] || job_abort
  job_wait
  clock_read
  # RACE: the alarm was for the job before
  [ -z "$job_late" ] || ! [ "$now" \< "$job_end" ] || job_late=
  # What the command has started ends with it, if it was ended
  [ -z "$job_late$job_aborted" ] || job_kill KILL
  job_last=$job_pid job_pid=
  job_judge
  [ -z "$job_reason" ] || job_keep
  exec 7>&-
  # A process that a killed job has started may hold the pipe. job_litter does not look in the spool
  if [ -n "$job_gone" ] || [ "$job_place" = "$q/tmp" ]; then
    rm -f "$job_place/$work_owner.pipe.flatq"
  fi
  [ ! -f "$FLATQ_REASON" ] || job_named
}

# job_named - set job_given to the reason that a command gave, which exited by itself
job_named() {
  case $job_reason in exit-*) read -r job_given <"$FLATQ_REASON" || : ;; esac
  reason_good "$job_given" || job_given=
  rm -f "$FLATQ_REASON"
}

# job_keeps - open a new file on 7, and set job_pipe, for what the command writes to its standard
# error; or go on without
job_keeps() {
  job_pipe=$job_place/$work_owner.pipe.flatq
  [ -p "$job_pipe" ] || mkfifo "$job_pipe"
  set -C
  [ -p "$job_pipe" ] && command exec 7>"$job_file.flatq" || job_pipe=
  set +C
}

# job_keep - keep it as a note, which may be missing
job_keep() {
  [ -d "$q/why" ] || mkdir "$q/why"
  tail -c 4096 </proc/self/fd/7 >"$q/why/$slip_id" || :
}

# job_start COMMAND ... - start the job, with its line for the helper. It outlives signals to its
# process group. With job_pipe, dd waits for what the command writes to its standard error first;
# then tee passes it on, and tail puts the end on 7. The job waits for them for a second at most: if
# another process holds the pipe, the next makes one
job_start() {
  # shellcheck disable=SC2016 # the job's own variables
  {
    work_environment
    exec setsid sh -c '
      trap : HUP INT QUIT TERM
      [ "$PPID" = "$1" ] && printf "%s %s\n" "$$" "$2" >&3 || exit
      pipe=$3 state=Z turn=0
      shift 3
      exec 3>&- 8>&5
      # If it cannot be opened, the command writes where the worker does
      [ -z "$pipe" ] || command exec 8<>"$pipe" || pipe=
      [ -z "$pipe" ] || {
        {
          trap "" HUP INT QUIT TERM
          exec </proc/self/fd/8 8>&-
          # Most commands write nothing, and need no tee and no tail. What comes first and cannot be
          # stored is lost, but the command goes on
          dd bs=4096 count=1 >&7 && [ ! -s /proc/self/fd/7 ] || {
            cat </proc/self/fd/7 >&5
            tee /proc/self/fd/9 9>&1 >&5 | tail -c 4096 >&7
          }
        } &
        # From here on, who writes gets SIGPIPE if nobody reads
        command exec 8>"$pipe"
        state=
      }
      (exec "$@" <&6 6<&- 2>&8 4<&- 5>&- 7>&- 8>&-)
      code=$?
      exec 8>&-
      until [ "$state" = Z ]; do
        read -r word word state word <"/proc/$!/stat" || break
        turn=$((turn + 1))
        [ $turn -le 80 ] || sleep 0.01
        [ $turn -le 180 ] || { rm -f "$pipe"; break; }
      done
      printf "over %s %s\n" "$$" "$code" >/proc/self/fd/4' \
      work "$$" "$job_line" "$job_pipe" "$@"
  } &
  job_pid=$!
}

# job_lease - set job_lease; renew the lease if a third of it is over, or the body will take long to
# decode; return 66 if the message is no longer ours
job_lease() {
  job_lease=${work_lease:-$slip_lease} job_short=
  [ "$job_lease" -le 300000000 ] || job_lease=300000000
  # The helper may be late by a second
  [ "$job_lease" -ge 3 ] || job_lease=3 job_short=1
  clock_read
  [ -z "$job_short" ] && [ "$slip_size" -lt 1000000 ] &&
    [ $((1$now - 1$taken_at)) -lt $((job_lease * 100 / 3)) ] && return 0
  message_touch $((job_lease + slip_size / 1000000))
  job_code=$?
  if [ $job_code -eq 0 ]; then
    taken=$slip.$slip_owner.$later slip_path=$q/out/$taken
  # The helper will try again
  elif [ $job_code -eq 66 ] || ! [ "$now" \< "${taken##*.}" ]; then
    return $job_code
  fi
}

# job_body - decode the message into a file, open on 6, or set job_reason; return 66 if the message
# is no longer ours
job_body() {
  body_open
  case $? in
  0)
    job_places job_decode || { job_place=$q/tmp; job_decode; }
    job_code=$?
    exec 7<&-
    [ $job_code -ne 0 ] || return 0 ;;
  66) return 66 ;;
  esac
  body_cut='' job_reason=unfed
  need engine/body
  ! body_fault || job_reason=$body_reason
}

# job_places FUNCTION - call FUNCTION for each job_place of temporary files, until it returns 0
job_places() {
  for job_place in "${TMPDIR:-/dev/shm}" /dev/shm /tmp; do
    ! "$1" || return 0
  done
  return 1
}

# job_decode - decode the body, open on 7, into a new job_file in job_place, open on 6; return 1 if
# its size is not what the slip says
job_decode() {
  job_file=$job_place/$work_owner.$slip_nonce.flatq
  set -C
  command exec 6>"$job_file"
  job_code=$?
  set +C
  [ $job_code -eq 0 ] || return 1
  # base64 leaves the file's offset at the end of what it wrote: the size costs no process
  base64 -d </proc/self/fd/7 >&6 && read -r job_word job_size </proc/self/fdinfo/6 &&
    [ "$job_size" = "$slip_size" ] && command exec 6<"$job_file" && return 0
  exec 6<&-
  rm -f "$job_file"
  return 1
}

# job_litter - remove from job_place what $work_owner and dead workers have left
job_litter() {
  for job_file in "$job_place"/[0-9]*-[0-9]*.*.flatq; do
    [ -e "$job_file" ] || continue
    job_owner=${job_file##*/} job_owner=${job_owner%%.*}
    [ "$job_owner" != "$work_owner" ] && ! owner_dead "$job_owner" || rm -f "$job_file"
  done
  return 1
}

# job_wait - wait until the job is over; set job_code, and job_gone if it was killed
job_wait() {
  job_dead=
  while :; do
    # 4 has ended, or a signal came. A job that is dead may have told since: read once more
    if ! read -r job_word job_who job_code <&4; then
      [ -z "$job_dead" ] || break
      if owner_dead "$job_pid-$job_since"; then job_dead=1; else helper_look; fi
      continue
    fi
    case $job_word.$job_who in
    "over.$job_pid") return ;;
    # The command may still run
    "gone.$job_pid") job_kill KILL; break ;;
    esac
  done
  job_code=137 job_gone=1
}

# job_abort - for a trap: end the command, by KILL after two seconds
job_abort() {
  job_aborted=1
  job_kill TERM
  for job_turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    ! owner_dead "$job_pid-$job_since" || return 0
    sleep 0.1
  done
  job_kill KILL
  printf 'gone %s\n' "$job_pid" >/proc/self/fd/4
}

job_judge() {
  if [ -n "$job_late" ]; then
    job_reason=timeout
  elif [ -n "$job_aborted" ]; then
    job_reason=aborted
  # A signal to our group has ended the job before it had a group of its own
  elif [ -n "$take_stop" ] && [ -n "$job_gone" ]; then
    job_reason=untried
  elif [ "$job_code" -gt 128 ] && [ "$job_code" -le 192 ]; then
    job_reason=signal-$((job_code - 128))
  elif [ "$job_code" -ne 0 ]; then
    job_reason=exit-$job_code
  else
    job_reason=
  fi
}
