package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
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

// Read returns the value of a metric at an URL. Labels are part of the name, as in the text format.
func (g *Gauges) Read(ctx context.Context, url, name string) (float64, error) {
	value, found, err := g.sum(ctx, url, func(series string) bool { return series == name })
	if err == nil && !found {
		err = fmt.Errorf("there is no metric %s", name)
	}
	return value, err
}

// Sum returns the sum of a metric's series with the labels at an URL, 0 without any. Each label is in the text format, such
// as code="200".
func (g *Gauges) Sum(ctx context.Context, url, name string, labels ...string) (float64, error) {
	value, _, err := g.sum(ctx, url, func(series string) bool {
		return strings.HasPrefix(series, name+"{") && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) })
	})
	return value, err
}

// sum returns the sum of the chosen series, and whether there are any.
func (g *Gauges) sum(ctx context.Context, url string, choose func(series string) bool) (value float64, found bool, _ error) {
	err := scrape(ctx, g.http, url, func(body io.Reader) error {
		lines := newScanner(body)
		for lines.Scan() {
			line := lines.Text()
			end := strings.LastIndexByte(line, ' ')
			if end < 0 || strings.HasPrefix(line, "#") || !choose(line[:end]) {
				continue
			}
			n, err := strconv.ParseFloat(line[end+1:], 64)
			if err != nil {
				return fmt.Errorf("reading %s: %w", line[:end], err)
			}
			value, found = value+n, true
		}
		return lines.Err()
	})
	return value, found, err
}
