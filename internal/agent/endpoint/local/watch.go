package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// hostsWatch tells of changes of /etc/hosts.
type hostsWatch struct{ events *os.File }

// watchHosts begins to watch. The folder tells of a file that was replaced; the file, of one
// that is a mount and was written in place.
func watchHosts(root string) (*hostsWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", hostsFile, err)
	}
	const inFolder = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_CREATE
	path := filepath.Join(root, hostsFile)
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), inFolder); err != nil {
		return nil, errors.Join(fmt.Errorf("watching the folder of %s: %w", hostsFile, err), unix.Close(fd))
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_CLOSE_WRITE); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", hostsFile, err), unix.Close(fd))
	}
	// With os.File the Go runtime polls the descriptor, so no thread blocks.
	return &hostsWatch{os.NewFile(uintptr(fd), "inotify")}, nil
}

// wait returns when the file may have changed, or when ctx ends. It ends the watch.
func (w *hostsWatch) wait(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = w.events.Close() })
	defer func() {
		if stop() {
			_ = w.events.Close()
		}
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := w.events.Read(buffer)
		if err != nil || concernsHosts(buffer[:n]) {
			return
		}
	}
}

// concernsHosts reports whether one of the events is about the file. Events of the file
// itself have no name.
func concernsHosts(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		// The length of the name is the last field before it; see inotify(7).
		length := int(binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]))
		end := min(unix.SizeofInotifyEvent+length, len(events))
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00"))
		if name == "" || name == filepath.Base(hostsFile) {
			return true
		}
		events = events[end:]
	}
	return false
}

const (
	// checkInterval is how often all is checked although nothing was noticed, and
	// retryInterval how often after a failure.
	checkInterval = 5 * time.Minute
	retryInterval = 10 * time.Second
	// minInterval is the least time between two checks. It bounds a dispute with another
	// program about the file.
	minInterval = time.Second
	// settleTime passes between a change of /etc/hosts and its check. Another program may still
	// write into the file: what it writes after the file was replaced would be lost.
	settleTime = 100 * time.Millisecond
)

// Run keeps the endpoint until ctx ends, and calls changed when Apply or Keep would return
// something else than before.
func (e *Endpoint) Run(ctx context.Context, changed func()) {
	former := ""
	for ctx.Err() == nil {
		waiting, cancel := context.WithCancel(ctx)
		causes, noticed := 0, make(chan struct{}, 3)
		begin := func(wait func(context.Context)) {
			causes++
			go func() {
				wait(waiting)
				noticed <- struct{}{}
			}()
		}
		// What happens after the check is noticed.
		watch, err := watchHosts(e.o.Root)
		if err != nil {
			e.o.Log.Warn("Changes are noticed only at intervals", "error", err)
		} else {
			begin(func(ctx context.Context) {
				watch.wait(ctx)
				_ = e.o.Clock.Wait(ctx, settleTime)
			})
		}
		began := e.o.Clock.Now()
		served, err := e.Keep(ctx)
		outcome, next := served, checkInterval
		if err != nil {
			outcome, next = err.Error(), retryInterval
		}
		if outcome != former && ctx.Err() == nil {
			former = outcome
			changed()
		}
		if served != "" {
			begin(func(ctx context.Context) { _ = e.o.Process.Watch(ctx, func() {}) })
		}
		begin(func(ctx context.Context) { _ = e.o.Clock.Wait(ctx, next) })
		select {
		case <-noticed:
			causes--
		case <-e.changed:
		case <-ctx.Done():
		}
		cancel()
		for range causes {
			<-noticed
		}
		_ = e.o.Clock.Wait(ctx, minInterval-e.o.Clock.Now().Sub(began))
	}
}
