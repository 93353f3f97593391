package enrolment

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	defaultNamePattern = "host-{{ .HostID }}"
	// maxNameOutput bounds what a pattern may write before it is cut to a label.
	maxNameOutput = 1024
	maxLabel      = 63
)

// NamePattern makes ElementalHost names.
type NamePattern struct {
	template *template.Template
}

// nameData is what a pattern may refer to.
type nameData struct {
	HostID    string
	Inventory *infrav1.HostInventory
}

// ParseNamePattern parses ElementalRegistration.spec.hostTemplate.namePattern;
// blank means the default. Patterns insert fields and choose with if and index;
// loops and other functions are refused, for a pattern is executed for everybody
// who enrols.
func ParseNamePattern(pattern string) (*NamePattern, error) {
	if pattern == "" {
		pattern = defaultNamePattern
	}
	t, err := template.New("namePattern").Option("missingkey=error").Parse(pattern)
	if err != nil {
		return nil, fmt.Errorf("parsing name pattern: %w", err)
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("parsing name pattern: it defines templates")
	}
	if err := check(t.Root); err != nil {
		return nil, fmt.Errorf("parsing name pattern: %w", err)
	}
	p := &NamePattern{template: t}
	// Fields that don't exist are found out here rather than at an enrolment.
	sample := &infrav1.HostInventory{Disks: make([]infrav1.HostDisk, 1), NICs: []infrav1.HostNIC{{Addresses: make([]string, 1)}}}
	if _, err := p.Name("sample", sample); err != nil {
		return nil, err
	}
	return p, nil
}

// Name returns the name for a host: a DNS label, never empty.
func (p *NamePattern) Name(hostID string, inventory *infrav1.HostInventory) (string, error) {
	out := &limitedBuilder{}
	if err := p.template.Execute(out, nameData{HostID: hostID, Inventory: inventory}); err != nil {
		return "", fmt.Errorf("executing name pattern: %w", err)
	}
	name := dnsLabel(out.String())
	if name == "" {
		return DefaultName(hostID), nil
	}
	return name, nil
}

// DefaultName is a host's name where no pattern says otherwise.
func DefaultName(hostID string) string { return "host-" + hostID }

// SuffixedName is the name of a host whose own name is taken.
func SuffixedName(name, hostID string) string {
	suffix := "-" + hostID
	if len(name)+len(suffix) > maxLabel {
		name = strings.TrimRight(name[:maxLabel-len(suffix)], "-")
	}
	return name + suffix
}

// check walks a pattern and refuses all that is not plain insertion.
func check(node parse.Node) error {
	switch n := node.(type) {
	case nil, *parse.TextNode, *parse.FieldNode, *parse.NumberNode, *parse.StringNode, *parse.CommentNode:
		return nil
	case *parse.ListNode:
		return checkAll(n.Nodes)
	case *parse.ActionNode:
		return check(n.Pipe)
	case *parse.IfNode:
		if err := check(n.Pipe); err != nil {
			return err
		}
		if n.ElseList != nil {
			if err := check(n.ElseList); err != nil {
				return err
			}
		}
		return check(n.List)
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			return errors.New("variables are not allowed")
		}
		return checkAll(n.Cmds)
	case *parse.CommandNode:
		return checkAll(n.Args)
	case *parse.ChainNode:
		return check(n.Node)
	case *parse.IdentifierNode:
		if n.Ident == "index" {
			return nil
		}
		return fmt.Errorf("function %s is not allowed", n.Ident)
	default:
		return fmt.Errorf("%q is not allowed", node.String())
	}
}

func checkAll[N parse.Node](nodes []N) error {
	for _, n := range nodes {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

// dnsLabel turns text into an RFC 1123 label: lower case, and a dash for every run
// of other characters.
func dnsLabel(text string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(text) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			dash = b.Len() > 0
			continue
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	label := b.String()
	if len(label) > maxLabel {
		label = strings.TrimRight(label[:maxLabel], "-")
	}
	return label
}

type limitedBuilder struct {
	strings.Builder
}

// Write implements io.Writer.
func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxNameOutput {
		return 0, errors.New("the name is too long")
	}
	return b.Builder.Write(p)
}
