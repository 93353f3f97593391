package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/count"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/hostlog"
)

const (
	// maxWait bounds --timeout: nobody waits longer, and the request ends with it.
	maxWait = time.Hour
	// withdrawTime is how long the withdrawal of a request may take.
	withdrawTime = 10 * time.Second
)

// errNoAnswer is the cause when the time of --timeout is over.
var errNoAnswer = errors.New("the host has not answered in time")

// logQuery is what a person wants to see.
type logQuery struct {
	host, operation string
	timeout         time.Duration
	refresh         bool
}

func (e *environment) hostLogs() *cobra.Command {
	var q logQuery
	types := slices.Sorted(maps.Keys(hostlog.Operations()))
	cmd := &cobra.Command{
		Use: "logs HOST", Short: "Print the log of the last bootstrap or reset of a host",
		Long: "Asks the host for the log of its last bootstrap or reset, whichever began last, or of the operation that --operation names.\n" +
			"What looks like a secret is left out on the host. The log has at most 1 MiB and is kept for an hour in a Secret.\n" +
			"You need the verb logs on elementalhosts, and the right to read that Secret.",
		Example: "  kubectl elemental logs box-1\n" +
			"  kubectl elemental logs box-1 --operation nodeupgrade",
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames("elementalhosts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.host = args[0]
			return e.runHostLogs(cmd.Context(), q)
		},
	}
	cmd.Flags().StringVar(&q.operation, "operation", "", "one of "+strings.Join(types, ", "))
	cmd.Flags().DurationVar(&q.timeout, "timeout", 2*time.Minute, "how long to wait for the host, at most 1h")
	cmd.Flags().BoolVar(&q.refresh, "refresh", false, "ask the host even if its log is there already")
	e.completeFlag(cmd, "operation", cobra.FixedCompletions(types, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (e *environment) runHostLogs(ctx context.Context, q logQuery) error {
	of, known := hostlog.Operations()[strings.ToLower(q.operation)]
	switch {
	case q.operation != "" && !known:
		return fmt.Errorf("--operation is %q; it must be one of %s", q.operation, strings.Join(slices.Sorted(maps.Keys(hostlog.Operations())), ", "))
	case q.timeout <= 0 || q.timeout > maxWait:
		return fmt.Errorf("--timeout is %s; it must be more than 0 and at most %s", q.timeout, maxWait)
	}
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	host, err := change.Host(ctx, c, namespace, q.host)
	if err != nil {
		return err
	}
	op, err := hostlog.Last(host, of)
	if err != nil {
		return err
	}
	log := hostlog.Current(host, op, e.Clock.Now())
	if log == nil || q.refresh {
		if log, err = e.askForLog(ctx, c, host, op.Type, q.timeout); err != nil {
			return err
		}
	}
	text, err := hostlog.Read(ctx, c, host, log)
	if err != nil {
		return err
	}
	return printLog(e, log, text)
}

// askForLog asks the host and waits for its answer. Without one the request is withdrawn.
func (e *environment) askForLog(ctx context.Context, c client.Client, host *infrav1.ElementalHost, of infrav1.OperationType, timeout time.Duration) (*infrav1.HostLog, error) {
	now := e.Clock.Now()
	p, id, err := hostlog.Ask(host, of, now.Add(timeout), now)
	if err != nil {
		return nil, err
	}
	if p == nil {
		fmt.Fprintf(e.ErrOut, "Somebody has asked %s for the log of its last %s already; waiting for it\n", host.Name, of)
	} else {
		if err := p.Apply(ctx, c, false); err != nil {
			return nil, err
		}
		fmt.Fprintf(e.ErrOut, "Asked %s for the log of its last %s; waiting for it\n", host.Name, of)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := e.Clock.NewTimer(timeout)
	defer over.Stop()
	go func() {
		select {
		case <-over.C():
			cancel(errNoAnswer)
		case <-waiting.Done():
		}
	}()
	log, err := hostlog.Wait(waiting, c, e.Clock, client.ObjectKeyFromObject(host), id)
	if err == nil {
		return log, nil
	}
	if waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	err = fmt.Errorf("waiting for the log of %s: %w", host.Name, err)
	if p == nil {
		return nil, err
	}
	return nil, errors.Join(err, withdraw(context.WithoutCancel(ctx), c, host, id))
}

// withdraw withdraws a request that nobody waits for any more. The manager does it later otherwise.
func withdraw(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTime)
	defer cancel()
	is, err := change.Host(ctx, c, host.Namespace, host.Name)
	if err != nil {
		return err
	}
	if p := hostlog.Withdraw(is, id); p != nil {
		return p.Apply(ctx, c, false)
	}
	return nil
}

// printLog prints a log, and says on standard error what is missing in it.
func printLog(e *environment, log *infrav1.HostLog, text []byte) error {
	if _, err := fmt.Fprint(e.Out, printers.EscapeTerminal(string(text))); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if log.State == infrav1.OperationRunning {
		fmt.Fprintf(e.ErrOut, "The %s still ran when the host answered.\n", log.Operation)
	}
	if log.Redactions > 0 {
		fmt.Fprintf(e.ErrOut, "The host has left out what looks like a secret, in %s.\n", count.Of(log.Redactions, "place"))
	}
	if log.CutBytes > 0 {
		fmt.Fprintf(e.ErrOut, "The host has cut %s of the middle.\n", count.Of(log.CutBytes, "byte"))
	}
	fmt.Fprintf(e.ErrOut, "The log is in Secret %s until %s.\n", log.SecretName, log.ExpiresAt.UTC().Format(time.RFC3339))
	return nil
}
