package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

func replace(e *environment) *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use: "replace HOST --by FREE-HOST", Short: "Let the machine of a free host take over a host whose machine is gone",
		Long: "HOST keeps its Machine, its Node and its host name, but its data is lost. Use this for a control plane whose etcd\n" +
			"you restore from S3 on another machine. In all other cases delete the Machine: its owner replaces it.",
		Example: "  kubectl elemental replace box-1 --by box-7",
		Args:    cobra.ExactArgs(1),
	}
	a := e.actor(cmd)
	cmd.Flags().StringVar(&by, "by", "", "the free host")
	cmd.MarkFlagsOneRequired("by")
	e.completeFlag(cmd, "by", e.completeNames("elementalhosts"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.connect(); err != nil {
			return err
		}
		return a.replace(cmd.Context(), args[0], by)
	}
	return cmd
}

func (a *actor) replace(ctx context.Context, name, by string) error {
	host, err := change.Host(ctx, a.client, a.namespace, name)
	if err != nil {
		return err
	}
	spare, err := change.Host(ctx, a.client, a.namespace, by)
	if err != nil {
		return err
	}
	s, err := change.Look(ctx, a.client, host)
	if err != nil {
		return err
	}
	return a.do(ctx, func() (*change.Plan, error) { return change.Replace(s, spare) })
}
