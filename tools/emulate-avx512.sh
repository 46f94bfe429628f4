#!/bin/sh
# Runs programs on an emulated processor that has AVX-512, for machines that have none.
#
#   tools/emulate-avx512.sh FOLDER KERNEL 'PROGRAM [ARGUMENT]...'...
#
# KERNEL is a Linux kernel (vmlinuz) with a serial console and initial file systems built in, FOLDER takes some 100 MB. The programs run
# in turn with the libraries that they load here; what they print goes to FOLDER/output. Exits with 1 if one of them fails.
# Needs bochs 3.0 with its display for terminals (2.7 rounds ties of vcvtps2ph and large words of vcvtudq2ps wrongly), isolinux, genisoimage,
# cpio and a static busybox.
set -eu

[ $# -ge 3 ] || { sed -n '2,9s/^#[ ]\{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
kernel=$2
shift 2
root=$folder/root
disc=$folder/disc
rm -rf "$root" "$disc" "$folder/output"
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$disc"
cp "$(command -v busybox)" "$root/busybox"

for command in "$@"; do
    program=$(realpath "${command%% *}")
    for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do
        mkdir -p "$root${file%/*}"
        cp -Lu "$file" "$root$file"
    done
    case $command in
        *' '*) echo "$program ${command#* }" ;;
        *) echo "$program" ;;
    esac
done > "$root/commands"

# The first process: a line per program, and its exit status.
cat > "$root/init" <<'END'
#!/busybox sh
/busybox mount -t devtmpfs none /dev
/busybox mount -t proc none /proc
exec < /dev/null > /dev/ttyS0 2>&1
/busybox grep -o -w -m 1 'avx512[a-z]*' /proc/cpuinfo
while read -r command; do
    echo "== $command"
    $command
    echo "== exit status $?"
done < /commands
echo "== end"
# Bytes that the serial port has not sent yet are lost with the power.
/busybox sleep 2
/busybox poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) > "$disc/initrd"

# Without xsavec and xsaves: Bochs tells another size of their format than Linux computes, which then uses no vectors at all.
cp "$kernel" "$disc/linux"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$disc"
cat > "$disc/isolinux.cfg" <<'END'
default linux
label linux
  kernel linux
  append initrd=initrd console=ttyS0,115200 quiet mitigations=off clearcpuid=xsavec,xsaves
END
genisoimage -quiet -R -o "$folder/disc.iso" \
    -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$disc"

cat > "$folder/bochsrc" <<END
cpu: model=corei7_skylake_x, ips=100000000
memory: guest=1024, host=1024
romimage: file=\$BXSHARE/BIOS-bochs-latest
vgaromimage: file=\$BXSHARE/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$folder/disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$folder/output
display_library: term
log: $folder/bochs.log
END
# Debian's bochs starts in its debugger, which needs a terminal and the command to continue. The machine's screen is
# then another terminal, which bochs names; the machine stops as soon as a buffer of output that nobody reads is full.
echo continue > "$folder/debugger"
: > "$folder/terminal"
{
    until screen=$(grep -ao '/dev/pts/[0-9]*' "$folder/terminal"); do sleep 1; done
    cat "$screen" > /dev/null
} &
reader=$!
# Power off ends it with status 1.
TERM=xterm script -qec "bochs -q -f $folder/bochsrc -rc $folder/debugger" /dev/null < /dev/null >> "$folder/terminal" || :
kill $reader 2> /dev/null || :

cat "$folder/output"
grep -q '^== end' "$folder/output" && ! grep -q '^== exit status [^0]' "$folder/output"
