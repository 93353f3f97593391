package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/fleet"
)

type hostsFlags struct {
	selector, cluster, registration, output string
	states                                  []string
	allNamespaces, watch, noHeaders         bool
}

func (e *environment) hosts() *cobra.Command {
	f := &hostsFlags{}
	cmd := &cobra.Command{
		Use: "hosts", Short: "Show hosts as a table", Args: cobra.NoArgs, Aliases: []string{"host"},
		Example: "  # All hosts of all namespaces that are free for machines\n" +
			"  kubectl elemental hosts -A --state Available\n\n" +
			"  # Hosts of a zone, and each of them again when it changes\n" +
			"  kubectl elemental hosts -l topology.kubernetes.io/zone=berlin --watch",
		RunE: func(cmd *cobra.Command, _ []string) error { return e.runHosts(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.selector, "selector", "l", "", "only hosts with these labels, such as rack=r1,gpu")
	fs.StringSliceVar(&f.states, "state", nil, "only hosts in one of these states, such as Available")
	fs.StringVar(&f.cluster, "cluster", "", "only hosts that are claimed for this Cluster")
	fs.StringVar(&f.registration, "registration", "", "only hosts that enrolled with this ElementalRegistration")
	fs.StringVarP(&f.output, "output", "o", "", "json or yaml; a table by default")
	fs.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "hosts of all namespaces")
	fs.BoolVarP(&f.watch, "watch", "w", false, "after the list, print each host again when it changes")
	fs.BoolVar(&f.noHeaders, "no-headers", false, "print no line with the names of columns")
	e.completeFlags(cmd)
	return cmd
}

func (e *environment) runHosts(ctx context.Context, f *hostsFlags) error {
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return fmt.Errorf("reading --selector: %w", err)
	}
	var printer fleet.Printer
	switch f.output {
	case "":
		printer = fleet.NewTable(e.Out, e.Clock, f.allNamespaces, f.noHeaders)
	case "json":
		printer = fleet.NewJSON(e.Out)
	case "yaml":
		printer = fleet.NewYAML(e.Out)
	default:
		return fmt.Errorf("--output is %q; it must be json or yaml", f.output)
	}
	if f.watch && f.output == "json" {
		return errors.New("--watch never ends, and a JSON list would; use --output yaml, or no --output")
	}
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	if f.allNamespaces {
		namespace = ""
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	lister := &fleet.Lister{Client: c, Clock: e.Clock, Namespace: namespace, Filter: fleet.Filter{
		Labels: selector, States: f.states, Cluster: f.cluster, Registration: f.registration,
	}}
	if f.watch {
		return lister.Watch(ctx, printer)
	}
	count, err := lister.List(ctx, printer)
	if err == nil && count == 0 && f.output == "" {
		fmt.Fprintln(e.ErrOut, noHosts(namespace))
	}
	return err
}

func noHosts(namespace string) string {
	if namespace == "" {
		return "No hosts found"
	}
	return "No hosts found in namespace " + namespace
}
