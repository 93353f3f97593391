package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

func reject(e *environment) *cobra.Command {
	return e.oneHostCommand(&cobra.Command{
		Use: "reject", Short: "Bar a host; what runs on it stays as it is",
		Example: "  kubectl elemental reject box-1",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) { return change.Reject(s) })
}

func cordon(e *environment) *cobra.Command {
	var reason string
	cmd := e.hostCommand(&cobra.Command{
		Use: "cordon", Short: "Keep new Machines off hosts; what runs on them continues",
		Example: "  kubectl elemental cordon box-1 --reason 'new rack'",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) { return change.Cordon(s, reason) })
	cmd.Flags().StringVar(&reason, "reason", "not given", "reason, for other people")
	return cmd
}

func uncordon(e *environment) *cobra.Command {
	return e.hostCommand(&cobra.Command{
		Use: "uncordon", Short: "End the cordon of hosts",
		Example: "  kubectl elemental uncordon -l rack=r1",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) { return change.Uncordon(s.Host) })
}

func maintenance(e *environment) *cobra.Command {
	var reason, until string
	var length time.Duration
	var end bool
	cmd := e.hostCommand(&cobra.Command{
		Use: "maintenance", Short: "Leave hosts with their Nodes alone while somebody works on them",
		Example: "  kubectl elemental maintenance box-1 --for 2h --reason 'new disk'\n" +
			"  kubectl elemental maintenance box-1 --until 2026-11-22T06:00:00Z\n" +
			"  kubectl elemental maintenance box-1 --end",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) {
		now := e.Clock.Now()
		if end {
			return change.EndMaintenance(s)
		}
		at := now.Add(length)
		if until != "" {
			var err error
			if at, err = time.Parse(time.RFC3339, until); err != nil {
				return nil, fmt.Errorf("--until is %q; it must be a time such as 2026-11-22T06:00:00Z", until)
			}
		}
		return change.Maintenance(s, reason, at, now)
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if end && reason != "" {
			return errors.New("--reason is for the beginning of a maintenance, not for --end")
		}
		return nil
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for other people")
	cmd.Flags().DurationVar(&length, "for", 0, "how long the maintenance lasts from now on, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "when the maintenance ends, such as 2026-11-22T06:00:00Z")
	cmd.Flags().BoolVar(&end, "end", false, "end the maintenance now")
	cmd.MarkFlagsMutuallyExclusive("for", "until", "end")
	cmd.MarkFlagsOneRequired("for", "until", "end")
	return cmd
}

func fence(e *environment) *cobra.Command {
	var reason string
	var force bool
	cmd := e.oneHostCommand(&cobra.Command{
		Use: "fence", Short: "Bar a stolen or dead host and release it by force",
		Example: "  kubectl elemental fence box-1 --reason stolen",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) {
		return change.Fence(s, reason, force)
	})
	cmd.Flags().StringVar(&reason, "reason", "not given", "reason, for other people")
	addForce(cmd, &force)
	return cmd
}

func addForce(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "also the last control-plane host that serves: its cluster loses its API server, and etcd its data")
}

func unfence(e *environment) *cobra.Command {
	return e.oneHostCommand(&cobra.Command{
		Use: "unfence", Short: "Remove the fence of a host",
		Example: "  kubectl elemental unfence box-1",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) { return change.Unfence(s.Host) })
}

func release(e *environment) *cobra.Command {
	var force bool
	cmd := e.oneHostCommand(&cobra.Command{
		Use: "release", Short: "Release a dead host, or one that is held",
		Long: "A dead host is fenced: its Machine is deleted without waiting for it. A host that is connected is refused.\n" +
			"A held host is reset, and offered to Machines again.",
		Example: "  kubectl elemental release box-1",
	}, func(_ context.Context, s change.Situation) (*change.Plan, error) {
		return change.Release(s, force, e.Clock.Now())
	})
	addForce(cmd, &force)
	return cmd
}
