package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/token"
)

func (e *environment) token() *cobra.Command {
	var show, rotate bool
	cmd := &cobra.Command{
		Use: "token REGISTRATION", Short: "Show the state of a registration's tokens, print the agent configuration, or make another token",
		Example: "  kubectl elemental token berlin\n" +
			"  kubectl elemental token berlin --show > config.yaml\n" +
			"  kubectl elemental token berlin --rotate",
		Args: cobra.ExactArgs(1),
	}
	a := e.actor(cmd)
	cmd.ValidArgsFunction = e.completeNames("elementalregistrations")
	cmd.Flags().BoolVar(&show, "show", false, "print the agent configuration with the token; keep it secret: whoever has it can enrol machines")
	cmd.Flags().BoolVar(&rotate, "rotate", false, "delete the token that the manager made; the manager makes another one")
	cmd.MarkFlagsMutuallyExclusive("show", "rotate")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.connect(); err != nil {
			return err
		}
		return a.runToken(cmd.Context(), args[0], show, rotate)
	}
	return cmd
}

func (a *actor) runToken(ctx context.Context, name string, show, rotate bool) error {
	view, err := token.Read(ctx, a.client, a.namespace, name, a.Clock.Now())
	if err != nil {
		return err
	}
	switch {
	case rotate:
		return a.do(ctx, view.Rotate)
	case show:
		config, err := view.Config()
		if err != nil {
			return err
		}
		if _, err := a.Out.Write(config); err != nil {
			return fmt.Errorf("writing the agent configuration: %w", err)
		}
		return nil
	}
	return a.printAll(view.Lines())
}
