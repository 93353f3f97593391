//go:build embedded

package monitoring_test

import (
	"context"
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
)

// Sizes of a picture, in pixels. A cell is one of the 24 columns and of the lines of Grafana's grid.
const (
	cellWidth, cellHeight = 40, 26
	titleHeight           = 24
	lineHeight            = 15
	axisWidth             = 48
	legendWidth           = 205
	// maxLegend is how many series a legend names, and maxName how many characters it has for a name and a value.
	maxLegend, maxName = 11, 31
)

// colours are those of the series of a panel, in order.
func colours() []string {
	return []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"}
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

// lines evaluates an expression for each second between two times. The legend names the labels in a series' name.
func (p *prometheus) lines(ctx context.Context, expr, legend string, from, to time.Time) ([]line, error) {
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
		l := line{name: regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(legend, func(label string) string {
			return series.Metric[strings.Trim(label, "{}")]
		})}
		for _, v := range series.Values {
			seconds, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("parsing a value: %w", err)
			}
			// A quantile of nothing is not a number.
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				l.points = append(l.points, point{time.UnixMilli(int64(seconds * 1000)).Sub(from), value})
			}
		}
		if len(l.points) > 0 {
			all = append(all, l)
		}
	}
	return all, nil
}

// picture is an SVG that grows by panels.
type picture struct {
	strings.Builder

	took time.Duration
}

func (p *picture) text(x, y, size int, anchor, text string) {
	fmt.Fprintf(p, `<text x="%d" y="%d" font-size="%d" text-anchor="%s">%s</text>`+"\n", x, y, size, anchor, html.EscapeString(text))
}

// panel draws a panel where the dashboard has it, below a line of the grid.
func (p *picture) panel(panel panel, top int, all []line) {
	x, y := panel.GridPos.X*cellWidth, (panel.GridPos.Y-top)*cellHeight
	width, height := panel.GridPos.W*cellWidth, panel.GridPos.H*cellHeight
	fmt.Fprintf(p, `<rect x="%d" y="%d" width="%d" height="%d" fill="white" stroke="#ddd"/>`+"\n", x, y, width, height)
	p.text(x+10, y+18, 13, "start", panel.Title)
	switch {
	case len(all) == 0:
		p.text(x+width/2, y+height/2+10, 13, "middle", "no data")
	case panel.Type == "stat":
		last := all[0].points[len(all[0].points)-1].value
		p.text(x+width/2, y+height/2+20, 34, "middle", amount(last, panel.unit()))
	default:
		p.plot(x+axisWidth, y+titleHeight+8, width-axisWidth-legendWidth, height-titleHeight-8-lineHeight-10, panel.unit(), all)
		p.legend(x+width-legendWidth+10, y+titleHeight+12, panel.unit(), all)
	}
}

// plot draws steps for each series.
func (p *picture) plot(left, top, width, height int, unit string, all []line) {
	most := 0.0
	for _, l := range all {
		for _, point := range l.points {
			most = max(most, point.value)
		}
	}
	if most == 0 {
		most = 1
	}
	for part := range 3 {
		y, x := top+height-part*height/2, left+part*width/2
		fmt.Fprintf(p, `<path d="M%d %dh%d" stroke="#ddd"/>`+"\n", left, y, width)
		p.text(left-6, y+4, 10, "end", amount(most*float64(part)/2, unit))
		p.text(x, top+height+lineHeight, 10, "middle", fmt.Sprintf("%.0f s", p.took.Seconds()*float64(part)/2))
	}
	for i, l := range all {
		fmt.Fprintf(p, `<path fill="none" stroke="%s" stroke-width="1.5" d="`, colours()[i%len(colours())])
		for j, point := range l.points {
			x := float64(left) + float64(width)*point.after.Seconds()/p.took.Seconds()
			y := float64(top) + float64(height)*(1-point.value/most)
			switch {
			case j == 0 || point.after-l.points[j-1].after > 2*time.Second:
				fmt.Fprintf(p, "M%.1f %.1f", x, y)
			case j+1 < len(l.points) && point.value == l.points[j-1].value && point.value == l.points[j+1].value:
				// The next step draws it.
			default:
				fmt.Fprintf(p, "H%.1fV%.1f", x, y)
			}
		}
		// So that a state of one second is seen, too.
		p.WriteString(`h3"/>` + "\n")
	}
}

// legend names the series, with their last values.
func (p *picture) legend(x, y int, unit string, all []line) {
	for i, l := range all {
		if i == maxLegend {
			p.text(x+15, y+i*lineHeight, 10, "start", fmt.Sprintf("and %d others", len(all)-i))
			return
		}
		fmt.Fprintf(p, `<path d="M%d %dh10" stroke="%s" stroke-width="2"/>`+"\n", x, y+i*lineHeight-4, colours()[i%len(colours())])
		value := ": " + amount(l.points[len(l.points)-1].value, unit)
		name := l.name
		if room := maxName - len(value); len(name) > room {
			name = name[:room-1] + "…"
		}
		p.text(x+15, y+i*lineHeight, 10, "start", name+value)
	}
}

// amount returns a value with its unit.
func amount(value float64, unit string) string {
	const minute, hour, day, year, mebibyte = 60, 60 * 60, 24 * 60 * 60, 365 * 24 * 60 * 60, 1 << 20
	number := func(v float64) string {
		if v < 1 {
			return strconv.FormatFloat(v, 'g', 2, 64)
		}
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	switch {
	case unit == "bytes":
		return fmt.Sprintf("%.0f MiB", value/mebibyte)
	case unit == "s" && value >= 2*year:
		return fmt.Sprintf("%.1f years", value/year)
	case unit == "s" && value >= 2*day:
		return fmt.Sprintf("%.0f days", value/day)
	case unit == "s" && value >= 2*hour:
		return fmt.Sprintf("%.0f h", value/hour)
	case unit == "s" && value >= 2*minute:
		return fmt.Sprintf("%.0f min", value/minute)
	case unit == "s" && value > 0 && value < 1:
		return number(value*1000) + " ms"
	case unit == "s":
		return number(value) + " s"
	case unit == "ops" || unit == "reqps":
		return number(value) + "/s"
	default:
		return number(value)
	}
}

// drawRows draws each row of the dashboard into a folder, from the queries of its panels.
func (r *rig) drawRows(folder string, from, to time.Time) {
	r.t.Helper()
	rows := rows(r.t)
	r.Expect(rows).To(HaveLen(4))
	for i, name := range []string{"fleet", "lives", "agents", "manager"} {
		row, p, bottom := rows[i], &picture{took: to.Sub(from)}, 0
		for _, panel := range row.panels {
			var all []line
			for _, target := range panel.Targets {
				more, err := r.prometheus.lines(r.t.Context(), interval(target.Expr), target.LegendFormat, from, to)
				r.Expect(err).NotTo(HaveOccurred(), "%s: %s", panel.Title, target.Expr)
				all = append(all, more...)
			}
			if !slices.Contains(withoutData(), panel.Title) {
				r.Expect(all).NotTo(BeEmpty(), panel.Title)
			}
			p.panel(panel, row.top, all)
			bottom = max(bottom, panel.GridPos.Y+panel.GridPos.H-row.top)
		}
		text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">`+"\n", 24*cellWidth, bottom*cellHeight)
		r.Expect(os.WriteFile(filepath.Join(folder, name+".svg"), []byte(text+p.String()+"</svg>\n"), 0o644)).To(Succeed())
	}
}
