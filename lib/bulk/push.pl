# push.pl - write the flat files of a bulk push, much faster than bulk_lines and push.awk, which
# serve import, and where perl or MIME::Base64 is missing: then it exits with 3, and reads nothing
#
# FLATQ_END is what ends a message, `l` a newline or `0` a NUL. The other variables of the
# environment, what it prints and its exit codes are those of push.awk.

use strict;
eval { require MIME::Base64 } or exit 3;
my ($priority, $rest, $nonce, $most, $most_lines, $most_bytes, $large) =
  map { $ENV{"FLATQ_$_"} } qw(PRIORITY REST NONCE MOST LINES BYTES LARGE);
my $end = $ENV{FLATQ_END} eq 'l' ? "\n" : "\0";
# The flat file that is being made: its lines, their number, the first and the last id
my ($lines, $n, $first, $last) = ('', 0);
# The next id, and the bytes of all messages and of all flat files
my ($id, $total, $written) = ($ENV{FLATQ_FIRST}, 0, 0);
my ($left, $got, $block) = ('');

binmode STDIN;
while ($got = read STDIN, $block, 65536) {
  my ($piece, @more) = split $end eq "\n" ? qr/\n/ : qr/\0/, $block, -1;
  $left .= $piece;
  exit 65 if $most ne '' and length $left > $most;
  if (@more) { put($left); $left = pop @more; put($_) for @more }
}
exit 74 if !defined $got;
put($left) if length $left;
flush();
printf "%.0f %.0f %.0f\n", $id - 1, $total, $written;
close STDOUT or exit 74;

# put MESSAGE - add a line. A flat file has the ids of one block
sub put {
  my $size = length $_[0];
  exit 65 if $most ne '' and $size > $most;
  my $number = sprintf '%012.0f', $id++;
  flush() if $size >= $large or $n == $most_lines or length $lines > $most_bytes or
    $n && substr($number, 0, 7) ne substr $first, 0, 7;
  $first = $number if !$n++;
  $last = $number;
  $lines .= "$priority.$number$rest$size.-.0-0-0-0\t";
  $lines .= MIME::Base64::encode_base64($_[0], '') . "\n";
  $total += $size;
  flush() if $size >= $large;
}

# flush - write the flat file
sub flush {
  return if !$n;
  my $name = "$priority.$first.$last.$n.0.$nonce";
  open my $file, '>', "$ENV{FLATQ_STAGE}/$priority." . substr($first, 0, 7) . "/$name" or exit 74;
  binmode $file;
  print $file $lines and close $file or exit 74;
  $written += length $lines;
  ($lines, $n) = ('', 0);
}
