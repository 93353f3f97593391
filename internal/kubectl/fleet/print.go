package fleet

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// NewTable returns a Printer of a table. Columns keep their widths from page to page.
func NewTable(out io.Writer, c clock.PassiveClock, withNamespace, noHeaders bool) Printer {
	return &table{
		out: printers.GetNewTabWriter(out), clock: c,
		printer: printers.NewTablePrinter(printers.PrintOptions{WithNamespace: withNamespace, NoHeaders: noHeaders}),
	}
}

type flusher interface {
	io.Writer
	Flush() error
}

type table struct {
	out     flusher
	clock   clock.PassiveClock
	printer printers.ResourcePrinter
}

func (t *table) Print(hosts []Host) error {
	page := &metav1.Table{ColumnDefinitions: columns()}
	for _, host := range hosts {
		page.Rows = append(page.Rows, row(host.ElementalHost, host.State, t.clock.Now()))
	}
	if err := t.printer.PrintObj(page, t.out); err != nil {
		return fmt.Errorf("printing hosts: %w", err)
	}
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("printing hosts: %w", err)
	}
	return nil
}

func (t *table) Close() error { return nil }

// NewJSON returns a Printer of one List in JSON.
func NewJSON(out io.Writer) Printer { return &jsonList{out: out} }

type jsonList struct {
	out   io.Writer
	begun bool
}

const (
	listBegin = "{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"List\",\n    \"items\": ["
	listEnd   = "\n    ]\n}\n"
)

func (l *jsonList) Print(hosts []Host) error {
	for _, host := range hosts {
		text, err := json.MarshalIndent(typed(host), "        ", "    ")
		if err != nil {
			return fmt.Errorf("encoding host %s: %w", host.Name, err)
		}
		before := ",\n        "
		if !l.begun {
			before, l.begun = listBegin+"\n        ", true
		}
		if _, err := fmt.Fprintf(l.out, "%s%s", before, text); err != nil {
			return fmt.Errorf("printing hosts: %w", err)
		}
	}
	return nil
}

func (l *jsonList) Close() error {
	end := listEnd
	if !l.begun {
		end = listBegin + "]\n}\n"
	}
	if _, err := io.WriteString(l.out, end); err != nil {
		return fmt.Errorf("printing hosts: %w", err)
	}
	return nil
}

// NewYAML returns a Printer of one YAML document for each host.
func NewYAML(out io.Writer) Printer { return &documents{out: out} }

type documents struct{ out io.Writer }

func (d *documents) Print(hosts []Host) error {
	for _, host := range hosts {
		text, err := yaml.Marshal(typed(host))
		if err != nil {
			return fmt.Errorf("encoding host %s: %w", host.Name, err)
		}
		if _, err := fmt.Fprintf(d.out, "---\n%s", text); err != nil {
			return fmt.Errorf("printing hosts: %w", err)
		}
	}
	return nil
}

func (d *documents) Close() error { return nil }

// typed returns the host with its kind, which lists leave out, and without managed fields.
func typed(host Host) *infrav1.ElementalHost {
	out := host.DeepCopy()
	out.APIVersion, out.Kind = infrav1.GroupVersion.String(), "ElementalHost"
	out.ManagedFields = nil
	return out
}
