package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Gauges reads metrics of measured servers.
type Gauges struct {
	http *http.Client
}

// NewGauges returns a reader that requests uncompressed responses, which cost the servers less.
func NewGauges() *Gauges {
	return &Gauges{http: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
}

// Read returns the value of a metric without labels at an URL.
func (g *Gauges) Read(ctx context.Context, url, name string) (float64, error) {
	value, found := 0.0, false
	err := scrape(ctx, g.http, url, func(body io.Reader) error {
		lines := newScanner(body)
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), name+" ")
			if !ok {
				continue
			}
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			value, found = n, true
		}
		return lines.Err()
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no metric %s", name)
	}
	return value, err
}
