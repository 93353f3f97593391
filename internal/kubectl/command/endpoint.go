package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/endpoint"
)

func (e *environment) endpoint() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use: "endpoint CLUSTER [move]", Short: "Show who has the endpoint of a Cluster and who can have it, or move it",
		Example: "  kubectl elemental endpoint berlin\n" +
			"  kubectl elemental endpoint berlin move --to box-2",
		Args: cobra.RangeArgs(1, 2),
	}
	a := e.actor(cmd)
	clusters := e.completeNames("clusters")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return []string{"move"}, cobra.ShellCompDirectiveNoFileComp
		}
		return clusters(cmd, args, word)
	}
	cmd.Flags().StringVar(&host, "to", "", "with move: the host that gets the endpoint; by default the best one")
	e.completeFlag(cmd, "to", e.completeNamesOfFlag("elementalhosts"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		move := len(args) == 2
		if move && args[1] != "move" || !move && host != "" {
			return errors.New("the second argument is move or missing, and --to is for move")
		}
		if err := a.connect(); err != nil {
			return err
		}
		view, err := endpoint.Read(cmd.Context(), a.client, a.namespace, args[0], a.Clock.Now())
		if err != nil {
			return err
		}
		if move {
			return a.do(cmd.Context(), func() (*change.Plan, error) { return view.Move(host) })
		}
		return a.printAll(view.Lines())
	}
	return cmd
}
