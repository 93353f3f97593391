package tunnel

import (
	"io"
	"os"
	"sync"
	"time"
)

// pipe hands data from a writer to a reader without a buffer of its own. It has what a
// request's body and an answer's body lack: deadlines.
type pipe struct {
	// writing is held by the goroutine that writes.
	writing sync.Mutex

	mu sync.Mutex
	// changed is signalled after each change of the fields below.
	changed *sync.Cond
	// data is what the writer offers and the reader has not taken.
	data []byte
	// err ends the pipe, for both sides.
	err           error
	readDeadline  deadline
	writeDeadline deadline
}

// deadline is one of a pipe's. It is used with the pipe's lock.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Read waits for data, for the end or for the deadline.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readDeadline.passed:
			return 0, os.ErrDeadlineExceeded
		case p.err != nil:
			return 0, p.err
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			if len(p.data) == 0 {
				p.changed.Broadcast()
			}
			return n, nil
		}
		p.changed.Wait()
	}
}

// Write waits until the reader has taken everything.
func (p *pipe) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = b
	defer func() { p.data = nil }()
	if len(b) > 0 {
		p.changed.Broadcast()
	}
	for {
		taken := len(b) - len(p.data)
		switch {
		case len(b) > 0 && taken == len(b):
			return taken, nil
		case p.err == io.EOF: //nolint:errorlint // an error that wraps it is no orderly end
			return taken, io.ErrClosedPipe
		case p.err != nil:
			return taken, p.err
		case p.writeDeadline.passed:
			return taken, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		p.changed.Wait()
	}
}

// end ends the pipe with an error; io.EOF is the orderly end. The first error counts.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		p.changed.Broadcast()
	}
	p.readDeadline.set(time.Time{}, p.changed)
	p.writeDeadline.set(time.Time{}, p.changed)
}

func (p *pipe) setReadDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readDeadline.set(t, p.changed)
}

func (p *pipe) setWriteDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeDeadline.set(t, p.changed)
}

// set starts the deadline anew. It is called with the lock of the condition, which it
// signals when the deadline passes.
func (d *deadline) set(t time.Time, changed *sync.Cond) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		changed.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		changed.L.Lock()
		defer changed.L.Unlock()
		if d.timer == timer {
			d.passed = true
			changed.Broadcast()
		}
	})
	d.timer = timer
}
