package script

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Limits of the recorded beginning and end of a script's output, in bytes.
const (
	headSize = 256 << 10
	tailSize = 256 << 10
)

// capture writes the beginning of a stream to a file at once, so that it
// survives a power cut, and its end when it is closed.
type capture struct {
	file *os.File
	head int
	tail []byte
	lost int64
	err  error
}

func newCapture(path string) (*capture, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the file for a script's output: %w", err)
	}
	return &capture{file: f}, nil
}

// Write never fails, because a full disk must not stop the script. Close returns the
// error.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	if room := headSize - c.head; room > 0 {
		first := p[:min(room, len(p))]
		written, err := c.file.Write(first)
		c.head += written
		if err != nil {
			c.err = errors.Join(c.err, err)
			c.head = headSize
		}
		p = p[len(first):]
	}
	c.tail = append(c.tail, p...)
	if extra := len(c.tail) - tailSize; extra > 0 {
		c.lost += int64(extra)
		c.tail = append(c.tail[:0], c.tail[extra:]...)
	}
	return n, nil
}

// Close writes the end of the stream and makes the file durable.
func (c *capture) Close() error {
	if c.lost > 0 {
		_, err := fmt.Fprintf(c.file, "\n[... %d bytes left out ...]\n", c.lost)
		c.err = errors.Join(c.err, err)
	}
	_, err := c.file.Write(c.tail)
	if err := errors.Join(c.err, err, c.file.Sync(), c.file.Close()); err != nil {
		return fmt.Errorf("recording the output of a script: %w", err)
	}
	return nil
}

// drain stops the copying of r and then reads what is in the pipe already: all that
// the script printed before it ended. Later output of a process in the background
// is not read.
func drain(r *os.File, out *capture, copied <-chan struct{}) {
	// A pipe supports deadlines; if one did not, its copy would end at the end
	// of the file.
	_ = r.SetReadDeadline(time.Unix(1, 0))
	<-copied
	_ = r.SetReadDeadline(time.Time{})
	conn, err := r.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	_ = conn.Read(func(fd uintptr) bool {
		for {
			n, err := syscall.Read(int(fd), buf)
			if n > 0 {
				_, _ = out.Write(buf[:n]) // never fails
			}
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if n <= 0 {
				return true
			}
		}
	})
}
