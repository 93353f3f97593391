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
	// DefaultPattern is used where a registration has none.
	DefaultPattern = "host-{{ .HostID }}"

	// maxLength is that of a DNS label.
	maxLength = 63
	// maxOutput bounds what a pattern and each of its functions may write.
	maxOutput = 4096
)

// Data is what a pattern can refer to.
type Data struct {
	// HostID is the ID the server gave the host.
	HostID string
	// Inventory is what the host says of itself.
	Inventory protocol.Inventory
}

// errEmpty tells that nothing was left of a name.
var errEmpty = errors.New("the pattern gives an empty name")

// Render returns the name that pattern, or DefaultPattern if it is blank, makes
// of data.
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

// Validate tells whether pattern can be read and refers to nothing but Data. A
// pattern that gives an empty name for a host that reports little is valid:
// Render refuses it for hosts of that kind only.
func Validate(pattern string) error {
	_, err := execute(pattern, Data{HostID: "0", Inventory: protocol.Inventory{
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
	// A name needs no loops, and loops can nest. Without them, without templates
	// that call each other and with functions that can't make long text out of
	// short, the work is bounded by the pattern's length.
	if len(tmpl.Templates()) > 1 {
		return "", errors.New("parsing the pattern: it may not define templates")
	}
	if tmpl.Tree != nil && loops(tmpl.Root) {
		return "", errors.New("parsing the pattern: it may not use range or template")
	}
	var out boundedWriter
	if err := tmpl.Execute(&out, data); err != nil {
		return "", fmt.Errorf("executing the pattern: %w", err)
	}
	return out.text.String(), nil
}

// loops tells whether a node below list repeats or calls others.
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

// boundedFuncs replaces the built-in functions that make text: printf can
// repeat an argument, and escaping twice can double it.
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

// boundedWriter refuses more than maxOutput bytes.
type boundedWriter struct {
	text strings.Builder
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.text.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("the name is longer than %d bytes", maxOutput)
	}
	return w.text.Write(p)
}

// label makes a DNS label of at most limit bytes: lower case, and a single dash
// for each run of anything else.
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
