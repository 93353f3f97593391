//go:build embedded

package monitoring_test

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
)

// Sizes of a picture, in pixels.
const (
	pictureWidth  = 800
	pictureHeight = 260
	plotLeft      = 40
	plotTop       = 36
	plotWidth     = 480
	plotHeight    = 190
	lineHeight    = 18
)

// colours are those of the series of a picture, in order.
func colours() []string {
	return []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"}
}

// point is a value of a series, a time after the beginning.
type point struct {
	after time.Duration
	value float64
}

// line is a series of a picture.
type line struct {
	name   string
	points []point
}

// lines evaluates an expression for each second between two times. A series is named by the value of its
// only label.
func (p *prometheus) lines(ctx context.Context, expr string, from, to time.Time) ([]line, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	arguments := url.Values{
		"query": {expr}, "start": {from.Format(time.RFC3339Nano)}, "end": {to.Format(time.RFC3339Nano)}, "step": {"1s"},
	}
	if err := p.get(ctx, "/api/v1/query_range?"+arguments.Encode(), &data); err != nil {
		return nil, err
	}
	var all []line
	for _, series := range data.Result {
		var l line
		for _, name := range series.Metric {
			l.name = name
		}
		for _, v := range series.Values {
			seconds, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("parsing a value: %w", err)
			}
			l.points = append(l.points, point{time.UnixMilli(int64(seconds * 1000)).Sub(from), value})
		}
		all = append(all, l)
	}
	return all, nil
}

// draw writes a picture with steps for each series, of a run that took this long.
func draw(file, title string, took time.Duration, all []line) error {
	most := 1.0
	for _, l := range all {
		for _, p := range l.points {
			most = max(most, p.value)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", pictureWidth, pictureHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n"+`<text x="%d" y="22" font-size="15">%s</text>`+"\n", plotLeft, html.EscapeString(title))
	for part := range 3 {
		y, x := plotTop+plotHeight-part*plotHeight/2, plotLeft+part*plotWidth/2
		fmt.Fprintf(&b, `<path d="M%d %dh%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%g</text>`+"\n", plotLeft, y, plotWidth, plotLeft-6, y+4, most*float64(part)/2)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%.0f s</text>`+"\n", x, plotTop+plotHeight+lineHeight, took.Seconds()*float64(part)/2)
	}
	for i, l := range all {
		colour := colours()[i%len(colours())]
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="2" d="`, colour)
		for j, p := range l.points {
			x := plotLeft + plotWidth*p.after.Seconds()/took.Seconds()
			y := plotTop + plotHeight*(1-p.value/most)
			if j == 0 || p.after-l.points[j-1].after > 2*time.Second {
				fmt.Fprintf(&b, "M%.1f %.1f", x, y)
			} else {
				fmt.Fprintf(&b, "H%.1fV%.1f", x, y)
			}
		}
		y := plotTop + (i+1)*lineHeight
		// So that a state of one second is seen, too.
		fmt.Fprintf(&b, `h3"/>`+"\n"+`<path d="M%d %dh16" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
			plotLeft+plotWidth+16, y-4, colour, plotLeft+plotWidth+38, y, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// drawPanels draws panels of the dashboard into a folder, from their own queries.
func (r *rig) drawPanels(folder string, from, to time.Time) {
	r.t.Helper()
	for title, name := range map[string]string{"Hosts by state": "hosts.svg", "Machines by state": "machines.svg"} {
		exprs := queries(r.t)[title]
		r.Expect(exprs).To(HaveLen(1))
		all, err := r.prometheus.lines(r.t.Context(), exprs[0], from, to)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(all).NotTo(BeEmpty(), title)
		r.Expect(draw(filepath.Join(folder, name), title, to.Sub(from), all)).To(Succeed())
	}
}
