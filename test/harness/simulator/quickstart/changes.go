package quickstart

import (
	"fmt"
	"slices"
	"strings"
)

// changes returns the differences between two snapshots as text.
func changes(before, after snapshot) []string {
	var lines []string
	for _, h := range after.hosts {
		i := slices.IndexFunc(before.hosts, func(was hostLine) bool { return was.name == h.name })
		if i < 0 || before.hosts[i] != h {
			lines = append(lines, h.text())
		}
	}
	for _, m := range after.machines {
		i := slices.IndexFunc(before.machines, func(was machineLine) bool { return was.name == m.name })
		if i < 0 || before.machines[i] != m {
			lines = append(lines, m.text())
		}
	}
	for _, m := range before.machines {
		if !slices.ContainsFunc(after.machines, func(is machineLine) bool { return is.name == m.name }) {
			lines = append(lines, "Machine "+m.name+" is gone")
		}
	}
	if after.endpoint != before.endpoint || after.serves != before.serves {
		lines = append(lines, "Endpoint: "+after.endpointText())
	}
	if after.cluster != before.cluster {
		lines = append(lines, "Cluster: "+after.cluster)
	}
	return lines
}

func (h hostLine) text() string {
	text := fmt.Sprintf("Host %s: %s, %s", h.name, h.connection(), h.is)
	if h.machine != "" {
		text += " (Machine " + h.machine + ")"
	}
	return text
}

func (h hostLine) connection() string {
	if h.connected {
		return "connected"
	}
	return "silent"
}

func (m machineLine) text() string {
	text := fmt.Sprintf("Machine %s: %s", m.name, m.phase)
	if m.host != "" {
		text += " on " + m.host
	}
	return text
}

func (s snapshot) endpointText() string {
	switch {
	case s.endpoint == "":
		return "blank"
	case s.serves == "":
		return s.endpoint
	}
	return s.endpoint + ", the address of " + s.serves
}

// table returns a snapshot as lines of text.
func (s snapshot) table() []string {
	rows := [][]string{{"HOST", "ADDRESS", "", "IS", "MACHINE"}}
	for _, h := range s.hosts {
		name := h.name
		if name == s.serves {
			name += " *"
		}
		rows = append(rows, []string{name, h.address, h.connection(), h.is, h.machine})
	}
	lines := aligned(rows)
	rows = [][]string{{"MACHINE", "PHASE", "HOST"}}
	for _, m := range s.machines {
		rows = append(rows, []string{m.name, m.phase, m.host})
	}
	if len(s.machines) > 0 {
		lines = append(append(lines, ""), aligned(rows)...)
	}
	return append(lines, "", "Cluster   "+s.cluster, "Endpoint  "+s.endpointText())
}

// aligned aligns columns.
func aligned(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}
