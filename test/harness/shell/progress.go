package shell

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Progress writes lines with the time since its start. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
	every time.Duration
}

// NewProgress returns a Progress that starts now and writes to out.
func NewProgress(out io.Writer) *Progress {
	return &Progress{out: out, start: time.Now(), every: 20 * time.Second}
}

// Say writes one line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%6s] %s\n", round(time.Since(p.start)), fmt.Sprintf(format, args...))
}

// Step runs work and prints when it starts, regularly while it runs, and how long it took.
func (p *Progress) Step(name string, work func() error) error {
	p.Say("%s", name)
	start := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Say("%s: still working after %s", name, round(time.Since(start)))
			case <-stop:
				return
			}
		}
	}()
	err := work()
	close(stop)
	<-stopped
	if err != nil {
		return err
	}
	p.Say("%s: took %s", name, round(time.Since(start)))
	return nil
}

// Write implements io.Writer, for the output of a program.
func (p *Progress) Write(text []byte) (int, error) {
	for _, line := range lines(text) {
		p.Say("%s", line)
	}
	return len(text), nil
}

// lines returns the lines of text that are not empty.
func lines(text []byte) []string {
	var all []string
	line := []byte{}
	for _, b := range append(slices.Clip(text), '\n') {
		if b != '\n' {
			line = append(line, b)
			continue
		}
		if len(line) > 0 {
			all = append(all, string(line))
		}
		line = line[:0]
	}
	return all
}

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
