package erase

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// zeroChunk is how many bytes are written at once if the kernel can't zero a range.
const zeroChunk = 4 << 20

// device is a disk opened exclusively.
type device interface {
	io.ReaderAt
	// Size returns the size in bytes.
	Size() (int64, error)
	// Zero makes a range read as zeros.
	Zero(offset, length int64) error
	// Discard discards a range. It returns errors.ErrUnsupported if the disk cannot
	// do that.
	Discard(offset, length int64) error
	// Flush makes all changes durable, and drops the kernel's cache of the disk, so
	// that the next read comes from the disk.
	Flush() error
	// Rescan makes the kernel read the partition table again.
	Rescan() error
	Close() error
}

// blockDevice is a device file.
type blockDevice struct{ file *os.File }

// openDevice opens a disk exclusively. According to open(2), O_EXCL without O_CREAT
// fails with EBUSY for a block device in use, for example a mounted one.
func openDevice(path string) (device, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice {
		err = fmt.Errorf("%s is no block device", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &blockDevice{file}, nil
}

func (d *blockDevice) ReadAt(p []byte, offset int64) (int, error) { return d.file.ReadAt(p, offset) }

func (d *blockDevice) Size() (int64, error) { return d.file.Seek(0, io.SeekEnd) }

func (d *blockDevice) Zero(offset, length int64) error {
	err := d.onRange(unix.BLKZEROOUT, offset, length)
	if !isUnsupported(err) {
		return err
	}
	zeros := make([]byte, zeroChunk)
	for length > 0 {
		n := min(length, zeroChunk)
		if _, err := d.file.WriteAt(zeros[:n], offset); err != nil {
			return err
		}
		offset, length = offset+n, length-n
	}
	return nil
}

func (d *blockDevice) Discard(offset, length int64) error {
	for _, request := range []uintptr{unix.BLKSECDISCARD, unix.BLKDISCARD} {
		if err := d.onRange(request, offset, length); !isUnsupported(err) {
			return err
		}
	}
	return errors.ErrUnsupported
}

func (d *blockDevice) Flush() error {
	if err := d.file.Sync(); err != nil {
		return err
	}
	return d.control(unix.BLKFLSBUF)
}

func (d *blockDevice) Rescan() error {
	// A device that cannot have partitions does not support this.
	if err := d.control(unix.BLKRRPART); err != nil && !isUnsupported(err) {
		return err
	}
	return nil
}

func (d *blockDevice) Close() error { return d.file.Close() }

// onRange calls an ioctl of linux/fs.h that takes a range in bytes. The conversion to uintptr is in the
// call of Syscall itself: the range is on the stack, which any other call may move (package unsafe).
func (d *blockDevice) onRange(request uintptr, offset, length int64) error {
	fd := d.file.Fd()
	span := [2]uint64{uint64(offset), uint64(length)}                                        //nolint:gosec // both come from sizes of devices, which are positive
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&span))) //nolint:gosec // the kernel takes a pointer
	if errno != 0 {
		return errno
	}
	return nil
}

// control calls an ioctl without an argument.
func (d *blockDevice) control(request uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), request, 0); errno != 0 {
		return errno
	}
	return nil
}

func isUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL)
}
