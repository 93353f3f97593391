package explain

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

const timeFormat = "2006-01-02T15:04:05Z"

// Write writes the report for people. Hosts report texts, so they are escaped.
func (r *Report) Write(out io.Writer, now time.Time) error {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), printers.EscapeTerminal(text))
	}
	line(0, "%s %s/%s: %s", r.Kind, r.Namespace, r.Name, r.Summary)
	for _, f := range r.Facts {
		line(1, "%s: %s", f.Name, f.Value)
	}
	for _, p := range r.Problems {
		b.WriteByte('\n')
		line(0, "%s: %s%s", p.Object, p.Reason, p.since(now))
		if p.Message != "" {
			line(1, "%s", p.Message)
		}
		line(1, "Remedy: %s", p.Remedy)
	}
	if r.Hosts != nil {
		b.WriteByte('\n')
		r.Hosts.write(line)
	}
	if r.Machines != nil {
		b.WriteByte('\n')
		r.Machines.write(line)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (p Problem) since(now time.Time) string {
	if p.Since == nil {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", p.Since.UTC().Format(timeFormat), duration.HumanDuration(now.Sub(p.Since.Time)))
}

func (h *Hosts) write(line func(depth int, format string, args ...any)) {
	if h.Required != "" {
		line(0, "Only host %s will do: its address is the cluster's endpoint.", h.Required)
	}
	line(0, "Hosts that match: %d of %d", h.Matching, h.Total)
	for _, name := range h.MatchingNames {
		line(1, "%s", name)
	}
	if more := h.Matching - len(h.MatchingNames); more > 0 {
		line(1, "and %d more; --all lists all", more)
	}
	if h.Remedy != "" {
		line(1, "Remedy: %s", h.Remedy)
	}
	for _, g := range h.RuledOut {
		line(0, "Ruled out: %d %s", g.Count, g.Reason)
		for _, host := range g.Hosts {
			line(1, "%s", withMessage(host.Name, host.Message))
		}
		if more := g.Count - len(g.Hosts); more > 0 {
			line(1, "and %d more; --all lists all", more)
		}
		line(1, "Remedy: %s", g.Remedy)
	}
}

func (m *Machines) write(line func(depth int, format string, args ...any)) {
	line(0, "Machines without a host: %d", m.Waiting)
	for _, t := range m.Examined {
		if t.Reason == "" {
			line(1, "%s: the host matches", t.Name)
			continue
		}
		line(1, "%s: %s", t.Name, withMessage(t.Reason, t.Message))
		line(2, "Remedy: %s", t.Remedy)
	}
	if more := m.Waiting - len(m.Examined); more > 0 {
		line(1, "and %d more; --all examines all", more)
	}
}

func withMessage(name, message string) string {
	if message == "" {
		return name
	}
	return name + ": " + message
}
