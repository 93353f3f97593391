package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/explain"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// explanation explains the named object of one kind.
type explanation func(e *explain.Explainer, ctx context.Context, namespace, name string) (*explain.Report, error)

func (e *environment) explain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain", Short: "Explain what a Machine, a host or a Cluster waits for, and what would end it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		e.explainKind("machine", "Explain what a Machine waits for, and what rules out each host for it", "machines", (*explain.Explainer).Machine),
		e.explainKind("host", "Explain what is wrong with a host, and which machines can't have it", "elementalhosts", (*explain.Explainer).Host),
		e.explainKind("cluster", "Explain the endpoint of a Cluster, and what its machines wait for", "clusters", (*explain.Explainer).Cluster),
	)
	return cmd
}

func (e *environment) explainKind(kind, short, resource string, run explanation) *cobra.Command {
	output, all := "", false
	cmd := &cobra.Command{
		Use: kind + " NAME", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(resource),
		Example: "  kubectl elemental explain " + kind + " my-" + kind,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.runExplain(cmd.Context(), run, args[0], output, all)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml; text by default")
	cmd.Flags().BoolVar(&all, "all", false, "name all objects, not only the first 20 of each reason")
	e.completeFlags(cmd)
	return cmd
}

func (e *environment) runExplain(ctx context.Context, run explanation, name, output string, all bool) error {
	if output != "" && output != "json" && output != "yaml" {
		return fmt.Errorf("--output is %q; it must be json or yaml", output)
	}
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	selectors, err := selector.NewCompiler()
	if err != nil {
		return fmt.Errorf("setting up selectors: %w", err)
	}
	explainer := &explain.Explainer{Client: c, Clock: e.Clock, Selectors: selectors, All: all}
	report, err := run(explainer, ctx, namespace, name)
	if err != nil {
		return err
	}
	var text []byte
	switch output {
	case "json":
		text, err = json.MarshalIndent(report, "", "    ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(report)
	default:
		return report.Write(e.Out, e.Clock.Now())
	}
	if err == nil {
		_, err = e.Out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
