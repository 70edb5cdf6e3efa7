# push.pl - write the flat files of a bulk push in perl, in half the time of bulk_encode and push.awk, which serve import, and where perl or MIME::Base64
# is missing
#
#   perl push.pl count   read standard input, and copy it to the file FLATQ_RAW unless that is empty; print the number of messages, then `end`
#   perl push.pl write   read the same input again, and write its flat files; print what push.awk prints
#
# Variables of the environment: FLATQ_END, what ends a message, `l` a newline or `0` a NUL; the others as in push.awk.
# Exits with 3, before it reads anything, if MIME::Base64 is missing; 65 if a message is too large; 74 if a read or a write failed, or, in `write`, if
# there are not FLATQ_COUNT messages.

use strict;
eval { require MIME::Base64 } or exit 3;
my ($priority, $rest, $nonce, $tty, $most) = map { $ENV{"FLATQ_$_"} } qw(PRIORITY REST NONCE TTY MOST);
my $end = $ENV{FLATQ_END} eq 'l' ? "\n" : "\0";
# The flat file that is being made: its lines, their number, and the first and the last id
my ($lines, $n, $first, $last) = ('', 0);
# The next id; messages so far, and the bytes of all messages and of all flat files
my ($id, $count, $total, $written) = ($ENV{FLATQ_FIRST}, 0, 0, 0);
binmode STDIN;
if ($ARGV[0] eq 'count') { count() } else { write_all() }
close STDOUT or exit 74;

sub count {
  my ($count, $last, $open, $over, $got, $block) = (0, $end, 0);
  my $raw = $ENV{FLATQ_RAW} ne '' && do { open my $file, '>', $ENV{FLATQ_RAW} or exit 74; binmode $file; $file };
  while ($got = read STDIN, $block, 65536) {
    $count += $end eq "\n" ? $block =~ tr/\n// : $block =~ tr/\0//;
    $last = substr $block, -1;
    # Stop copying once a message is too large, so that it does not fill the disk, but read to the end before refusing it
    my $at = rindex $block, $end;
    $open = $at < 0 ? $open + $got : $got - $at - 1;
    $over = 1 if $most ne '' and $open > $most;
    !$raw or $over or print $raw $block or exit 74;
  }
  # A failed read is not the end of the input
  exit 74 if !defined $got or $raw && !close $raw;
  exit 65 if $over;
  $count++ if $last ne $end;
  print "$count\nend\n";
}

sub write_all {
  my ($left, $got, $block) = ('');
  while ($got = read STDIN, $block, 65536) {
    my ($piece, @more) = split $end eq "\n" ? qr/\n/ : qr/\0/, $block, -1;
    $left .= $piece;
    if (@more) { put($left); $left = pop @more; put($_) for @more }
  }
  exit 74 if !defined $got;
  put($left) if length $left;
  flush();
  exit 74 if $count != $ENV{FLATQ_COUNT};
  say_progress("\r\033[K") if $count >= 50000;
  printf "%s %.0f %.0f\nend\n", $last, $total, $written;
}

# put MESSAGE - add a line. A flat file has at most 500 messages, about 4 MiB, and the ids of one block
sub put {
  my $size = length $_[0];
  exit 65 if $most ne '' and $size > $most;
  my $number = sprintf '%012.0f', $id++;
  flush() if $n == 500 or length $lines > 4194304 or $n && substr($number, 0, 7) ne substr $first, 0, 7;
  $first = $number if !$n;
  $last = $number;
  $lines .= "$priority.$number$rest$size.-.0-0-0-0\t" . MIME::Base64::encode_base64($_[0], '') . "\n";
  $n++;
  $total += $size;
  say_progress("\rpush: $count of $ENV{FLATQ_COUNT}") if ++$count % 50000 == 0;
}

# flush - write the flat file
sub flush {
  return if !$n;
  my $path = "$ENV{FLATQ_STAGE}/$priority." . substr($first, 0, 7) . "/$priority.$first.$last.$n.0.$nonce";
  open my $file, '>', $path or exit 74;
  binmode $file;
  print $file $lines and close $file or exit 74;
  $written += length $lines;
  ($lines, $n) = ('', 0);
}

sub say_progress {
  return if $tty eq '';
  open my $file, '>', $tty or return;
  print $file $_[0];
}
