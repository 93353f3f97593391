package hostname

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// DefaultPattern is the pattern of registrations that set none.
	DefaultPattern = "host-{{ .HostID }}"

	// maxLength is the maximum length of a DNS label.
	maxLength = 63
	// maxOutput bounds the output of a pattern and of each of its functions, in bytes.
	maxOutput = 4096
)

// Data is the data of a pattern.
type Data struct {
	// HostID is the ID of the host (spec.hostID).
	HostID string
	// Inventory is what the host has reported.
	Inventory protocol.Inventory
	// Hostname is the name that the host has given itself.
	Hostname string
}

// fields are what a pattern can refer to.
type fields struct {
	HostID    string
	Inventory protocol.Inventory
	reported  string
}

// errEmpty means that a pattern renders to an empty name.
var errEmpty = errors.New("the pattern gives an empty name")

// Hostname returns the first label of the host's own name, in lower case. A name that is no
// DNS name is not made into one: two hosts could then get the same.
func (f fields) Hostname() (string, error) {
	first, _, _ := strings.Cut(strings.ToLower(f.reported), ".")
	if first == "" || first == "localhost" || label(first, maxLength) != first {
		return "", fmt.Errorf("the host names itself %.64q, which is no host name of its own", f.reported)
	}
	return first, nil
}

// Render renders the pattern, or DefaultPattern if it is blank.
func Render(pattern string, data Data) (string, error) {
	text, err := execute(pattern, data)
	if err != nil {
		return "", err
	}
	name := label(text, maxLength)
	if name == "" {
		return "", errEmpty
	}
	return name, nil
}

// Validate returns an error if the pattern can't be parsed or refers to anything but Data.
// A pattern may render to an empty name for hosts that report little; then Render returns
// an error.
func Validate(pattern string) error {
	_, err := execute(pattern, Data{HostID: "0", Hostname: "host", Inventory: protocol.Inventory{
		Disks: []protocol.Disk{{}},
		NICs:  []protocol.NIC{{Addresses: []string{""}}},
	}})
	return err
}

// WithSuffix returns name with "-" and suffix appended, shortened to remain a
// DNS label.
func WithSuffix(name, suffix string) string {
	suffix = label(suffix, maxLength)
	if suffix == "" {
		return label(name, maxLength)
	}
	head := label(name, max(0, maxLength-len(suffix)-1))
	if head == "" {
		return suffix
	}
	return head + "-" + suffix
}

func execute(pattern string, data Data) (string, error) {
	if pattern == "" {
		pattern = DefaultPattern
	}
	tmpl, err := template.New("namePattern").Option("missingkey=error").Funcs(boundedFuncs()).Parse(pattern)
	if err != nil {
		return "", fmt.Errorf("parsing the pattern: %w", err)
	}
	// Without loops, without templates that call each other, and with bounded functions,
	// the length of the pattern bounds the work.
	if len(tmpl.Templates()) > 1 {
		return "", errors.New("parsing the pattern: it may not define templates")
	}
	if tmpl.Tree != nil && loops(tmpl.Root) {
		return "", errors.New("parsing the pattern: it may not use range or template")
	}
	if data.Inventory.Kubernetes == nil {
		data.Inventory.Kubernetes = &protocol.Kubernetes{}
	}
	var out boundedWriter
	if err := tmpl.Execute(&out, fields{HostID: data.HostID, Inventory: data.Inventory, reported: data.Hostname}); err != nil {
		return "", fmt.Errorf("executing the pattern: %w", err)
	}
	return out.text.String(), nil
}

// loops reports whether a node below list is a loop or calls another template.
func loops(list *parse.ListNode) bool {
	if list == nil {
		return false
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.RangeNode, *parse.TemplateNode:
			return true
		case *parse.IfNode:
			if loops(n.List) || loops(n.ElseList) {
				return true
			}
		case *parse.WithNode:
			if loops(n.List) || loops(n.ElseList) {
				return true
			}
		}
	}
	return false
}

// boundedFuncs replaces the built-in functions that return text. Their output can be much
// longer than their arguments.
func boundedFuncs() template.FuncMap {
	bounded := func(f func(...any) string) func(...any) (string, error) {
		return func(args ...any) (string, error) { return bound(f(args...)) }
	}
	return template.FuncMap{
		"printf": func(format string, args ...any) (string, error) {
			return bound(fmt.Sprintf(format, args...))
		},
		"print":    bounded(fmt.Sprint),
		"println":  bounded(fmt.Sprintln),
		"html":     bounded(template.HTMLEscaper),
		"js":       bounded(template.JSEscaper),
		"urlquery": bounded(template.URLQueryEscaper),
	}
}

func bound(text string) (string, error) {
	if len(text) > maxOutput {
		return "", fmt.Errorf("the text is longer than %d bytes", maxOutput)
	}
	return text, nil
}

// boundedWriter returns an error after maxOutput bytes.
type boundedWriter struct {
	text strings.Builder
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.text.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("the name is longer than %d bytes", maxOutput)
	}
	return w.text.Write(p)
}

// label converts text to a DNS label of at most limit bytes: it converts letters to lower
// case and replaces each run of other characters by a dash.
func label(text string, limit int) string {
	var out strings.Builder
	dash := false
	for _, r := range strings.ToLower(text) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			dash = out.Len() > 0
			continue
		}
		if dash {
			out.WriteByte('-')
			dash = false
		}
		out.WriteRune(r)
	}
	name := out.String()
	if len(name) > limit {
		name = strings.TrimRight(name[:limit], "-")
	}
	return name
}
