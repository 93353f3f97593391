package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// chunkBytes are written under one deadline: one second at 256 kbit/s.
	chunkBytes = 32 << 10
	// minRate, in bytes per second, bounds a whole download, so that a caller can't keep
	// a slot by reading a little now and then.
	minRate = 8 << 10
	// downloadSlack is added to the time that minRate allows.
	downloadSlack = time.Minute
	// maxDownload bounds one request, so that hosts behind slow links take turns with large
	// files. The agent resumes its download.
	maxDownload = time.Hour
)

// errTooSlow ends a download. The agent resumes it.
var errTooSlow = errors.New("the download takes too long")

// pacedWriter writes to a slow caller, but not to one that has stopped reading.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	end     time.Time
}

func newPacedWriter(w http.ResponseWriter, stall time.Duration, size int64) *pacedWriter {
	return &pacedWriter{
		ResponseWriter: w, control: http.NewResponseController(w), stall: stall,
		end: time.Now().Add(min(maxDownload, downloadSlack+time.Duration(size/minRate)*time.Second)),
	}
}

// Write implements io.Writer. It writes in chunks, each with its own deadline.
func (p *pacedWriter) Write(content []byte) (int, error) {
	written := 0
	for len(content) > 0 {
		now := time.Now()
		if now.After(p.end) {
			return written, errTooSlow
		}
		if err := p.control.SetWriteDeadline(now.Add(p.stall)); err != nil {
			return written, fmt.Errorf("setting the deadline: %w", err)
		}
		n, err := p.ResponseWriter.Write(content[:min(len(content), chunkBytes)])
		written += n
		if err != nil {
			return written, err
		}
		content = content[n:]
	}
	return written, nil
}

// Unwrap serves http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
