package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/count"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/enrol"
)

type enrolFlags struct {
	format  string
	proxy   enrol.Proxy
	offline bool
}

func (e *environment) enrol() *cobra.Command {
	f := &enrolFlags{}
	formats := strings.Join(enrol.Formats(), ", ")
	cmd := &cobra.Command{
		Use: "enrol REGISTRATION", Short: "Print a script or a configuration that enrols a machine by an ElementalRegistration",
		Long: "Prints a script that installs the agent on a machine and enrols it, or a configuration for the first boot\n" +
			"of a machine that contains the script. Keep it secret: it contains a token, and whoever has that can enrol\n" +
			"machines.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames("elementalregistrations"),
		Example: "  # A machine that runs\n" +
			"  kubectl elemental enrol berlin --for shell | ssh root@10.1.1.1 sh\n\n" +
			"  # User data of a virtual machine behind a proxy\n" +
			"  kubectl elemental enrol berlin --for cloud-init --https-proxy http://proxy.example.com:3128 > user-data",
		RunE: func(cmd *cobra.Command, args []string) error { return e.runEnrol(cmd.Context(), args[0], f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.format, "for", "", "what to print (required): "+formats)
	fs.StringVar(&f.proxy.HTTPS, "https-proxy", "", "the proxy through which the machine reaches the manager, http://host:port")
	fs.StringVar(&f.proxy.No, "no-proxy", "", "names and networks that the agent connects to without the proxy, such as 10.0.0.0/8,.site")
	fs.BoolVar(&f.offline, "offline", false, "don't ask the manager whether it serves agents")
	e.completeFlag(cmd, "for", cobra.FixedCompletions(enrol.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (e *environment) runEnrol(ctx context.Context, name string, f *enrolFlags) error {
	if f.format == "" {
		return fmt.Errorf("--for is missing; it must be one of %s", strings.Join(enrol.Formats(), ", "))
	}
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	machine, err := enrol.Read(ctx, c, e.Clock.Now(), namespace, name)
	if err != nil {
		return err
	}
	text, err := machine.Render(f.format, f.proxy)
	if err != nil {
		return err
	}
	if !f.offline {
		err := machine.CheckServed(ctx)
		if errors.Is(err, enrol.ErrUnreachable) {
			_, _ = fmt.Fprintf(e.ErrOut, "Warning: %v. Machines must reach %s.\n", err, machine.Server)
		} else if err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(e.ErrOut, "%s can enrol with it until %s. Keep it secret.\n", count.Of(machine.Uses, "machine"), machine.ExpiresAt.UTC().Format(time.RFC3339))
	if _, err := fmt.Fprint(e.Out, text); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}
