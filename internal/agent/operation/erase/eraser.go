package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Limits of an erasure.
const (
	// chunk is how many bytes are erased between two checks of the context.
	chunk = 256 << 20
	// edge is how many bytes are read back at both ends of a disk, where partition
	// tables and labels are.
	edge = 16 << 20
	// samples is how many random samples of sampleBytes are read back.
	samples     = 64
	sampleBytes = 1 << 20
	// parallel is how many disks are erased at once.
	parallel = 8
	// maxMessage bounds the message of a disk, in bytes.
	maxMessage = 256
	// stopTimeout limits how long the removal of a mapping may take.
	stopTimeout = 30 * time.Second
)

// Eraser erases the data disks of a host. The zero value is for this machine.
type Eraser struct {
	// Root replaces "/" in the paths of /sys and /proc.
	Root string
	// Dev is the directory of the device files; blank means /dev.
	Dev string
	// Commands runs dmsetup and mdadm.
	Commands oscommand.Runner

	open func(path string) (device, error)
}

// Done contains the disks that were erased before, by serial number and size. It
// never contains a disk without a serial number, because such a disk cannot be
// recognized after a boot: its name may change.
type Done map[string]bool

func (d *disk) key() string {
	if d.serial == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", d.serial, d.size)
}

// Erase erases the data disks by method, one of the Erase constants of package
// protocol, several at a time. It returns the result for every disk, sorted by name.
// It only reads back samples of the disks in done, and erases those that fail this.
// record is called with the key of each erased disk, one call at a time; its error
// ends the erasure. Erase returns the error of ctx or record, or an error if the
// disks cannot be listed. The failure of one disk is in its result.
func (e *Eraser) Erase(ctx context.Context, method string, done Done, record func(key string) error, progress func(step string)) ([]protocol.ErasedDisk, error) {
	found, err := disks(e.root())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]protocol.ErasedDisk, len(found))
	meter := &meter{show: progress, percents: map[string]int{}}
	slots := make(chan struct{}, parallel)
	var workers sync.WaitGroup
	var recording sync.Mutex
	for i := range found {
		d := &found[i]
		results[i] = protocol.ErasedDisk{Name: d.name, Serial: d.serial, SizeBytes: d.size, Result: protocol.ErasureKept, Message: d.keep}
		if d.keep != "" {
			continue
		}
		// Not concurrently, because a mapping may lie on several disks.
		if err := e.release(ctx, d); err != nil {
			results[i].Result, results[i].Message = protocol.ErasureFails, clip(err.Error())
			continue
		}
		workers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			how, err := e.erase(ctx, d, method, done[d.key()], meter)
			if err != nil {
				results[i].Result, results[i].Message = protocol.ErasureFails, clip(err.Error())
				return
			}
			results[i].Result, results[i].Message = protocol.Erased, how
			recording.Lock()
			defer recording.Unlock()
			if key := d.key(); key != "" && !done[key] {
				if err := record(key); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return results, nil
}

func (e *Eraser) root() string {
	if e.Root == "" {
		return "/"
	}
	return e.Root
}

func (e *Eraser) device(name string) string {
	dev := e.Dev
	if dev == "" {
		dev = "/dev"
	}
	return filepath.Join(dev, strings.ReplaceAll(name, "!", "/"))
}

// erase erases one disk, and returns how it was erased. before is true if the disk was
// erased before a restart.
func (e *Eraser) erase(ctx context.Context, d *disk, method string, before bool, meter *meter) (how string, err error) {
	open := e.open
	if open == nil {
		open = openDevice
	}
	opened, err := open(e.device(d.name))
	if err != nil {
		return "", fmt.Errorf("opening it: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	size, err := opened.Size()
	if err != nil {
		return "", fmt.Errorf("finding out its size: %w", err)
	}
	if size != d.size {
		return "", fmt.Errorf("it has %d bytes where the kernel lists %d", size, d.size)
	}
	if before {
		if err := verify(ctx, opened, size); err == nil {
			return "erased before a restart", nil
		}
	}
	how, err = wipe(ctx, opened, size, method, func(percent int) { meter.at(d.name, percent) })
	if err != nil {
		return "", err
	}
	if err := opened.Rescan(); err != nil {
		return "", fmt.Errorf("having its partition table read again: %w", err)
	}
	return how, nil
}

// wipe erases a device, reads back samples, and returns how it was erased.
func wipe(ctx context.Context, d device, size int64, method string, percent func(int)) (how string, err error) {
	if method == protocol.EraseDiscard {
		err := each(ctx, size, d.Discard, percent)
		if err == nil {
			if err = flushed(ctx, d, size); err == nil {
				return "discarded", nil
			}
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		// The disk cannot discard, or still returns data after a discard.
		how = "zeroed, because discarding did not work: " + err.Error()
	}
	if err := each(ctx, size, d.Zero, percent); err != nil {
		return "", fmt.Errorf("zeroing it: %w", err)
	}
	if err := flushed(ctx, d, size); err != nil {
		return "", err
	}
	if how == "" {
		how = "zeroed"
	}
	return clip(how), nil
}

func each(ctx context.Context, size int64, f func(offset, length int64) error, percent func(int)) error {
	for offset := int64(0); offset < size; offset += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		percent(int(offset * 100 / size))
		if err := f(offset, min(chunk, size-offset)); err != nil {
			return fmt.Errorf("at byte %d: %w", offset, err)
		}
	}
	percent(100)
	return nil
}

func flushed(ctx context.Context, d device, size int64) error {
	if err := d.Flush(); err != nil {
		return fmt.Errorf("flushing it: %w", err)
	}
	return verify(ctx, d, size)
}

// verify reads both ends and random samples, and returns an error unless all are zero.
func verify(ctx context.Context, d device, size int64) error {
	spans := [][2]int64{{0, min(edge, size)}, {max(0, size-edge), min(edge, size)}}
	for range samples {
		length := min(sampleBytes, size)
		offset, err := rand.Int(rand.Reader, big.NewInt(size-length+1))
		if err != nil {
			return fmt.Errorf("choosing a sample: %w", err)
		}
		spans = append(spans, [2]int64{offset.Int64(), length})
	}
	buffer, zeros := make([]byte, sampleBytes), make([]byte, sampleBytes)
	for _, span := range spans {
		for offset, end := span[0], span[0]+span[1]; offset < end; offset += sampleBytes {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			part := buffer[:min(sampleBytes, end-offset)]
			if _, err := d.ReadAt(part, offset); err != nil {
				return fmt.Errorf("reading back: %w", err)
			}
			if !bytes.Equal(part, zeros[:len(part)]) {
				left := slices.IndexFunc(part, func(b byte) bool { return b != 0 })
				return fmt.Errorf("data is left at byte %d", offset+int64(left))
			}
		}
	}
	return nil
}

// release removes the mappings on top of a disk.
func (e *Eraser) release(ctx context.Context, d *disk) error {
	for _, holder := range d.holders {
		if err := e.stop(ctx, holder); err != nil {
			return fmt.Errorf("held by %s, which could not be taken down: %w", holder, err)
		}
	}
	return nil
}

// stop removes an unused mapping. The kernel refuses to remove one that is in use.
func (e *Eraser) stop(ctx context.Context, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	s := &survey{root: e.root()}
	commands := e.Commands
	if commands == nil {
		commands = oscommand.System{}
	}
	if mapping := s.text("/sys/block/" + holder + "/dm/name"); mapping != "" {
		_, err := commands.Run(ctx, "", "dmsetup", "remove", mapping)
		return err
	}
	if s.text("/sys/block/"+holder+"/md/level") != "" {
		_, err := commands.Run(ctx, "", "mdadm", "--stop", e.device(holder))
		return err
	}
	if s.size(holder) == 0 {
		return nil // it was removed with a mapping above it, or for another disk
	}
	return errors.New("the agent doesn't know how")
}

// clip shortens a message to maxMessage, and replaces line breaks.
func clip(message string) string {
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\n", "; ")
	if len(message) <= maxMessage {
		return message
	}
	const more = "…"
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}
