package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

const (
	// maxHosts is the number of hosts that one command changes.
	maxHosts = 1000
	// maxAnswers is the number of bytes that are read of a person's answers.
	maxAnswers = 1 << 20
)

// actor is what a command that changes objects works with.
type actor struct {
	*environment

	client    client.Client
	namespace string

	dryRun, selector string
	yes              bool
	// answers are what a person types.
	answers *bufio.Reader
}

// planner looks at what depends on a host, and plans a change of it.
type planner func(ctx context.Context, s change.Situation) (*change.Plan, error)

// hostCommand returns a command that changes hosts. Several of them are selected by labels.
func (e *environment) hostCommand(cmd *cobra.Command, plan planner) *cobra.Command {
	a := e.actor(cmd)
	cmd.Use += " {HOST | -l SELECTOR}"
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.Flags().StringVarP(&a.selector, "selector", "l", "", "all hosts with these labels, such as rack=r1,gpu")
	cmd.RunE = a.changeHosts(plan)
	return cmd
}

// oneHostCommand returns a command that changes one host.
func (e *environment) oneHostCommand(cmd *cobra.Command, plan planner) *cobra.Command {
	a := e.actor(cmd)
	cmd.Use += " HOST"
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = a.changeHosts(plan)
	return cmd
}

// changeHosts returns what a command does that changes the hosts of its arguments.
func (a *actor) changeHosts(plan planner) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.connect(); err != nil {
			return err
		}
		hosts, err := a.hosts(cmd.Context(), args)
		if err != nil {
			return err
		}
		return a.each(cmd.Context(), hosts, plan)
	}
}

// actor adds the flags of all commands that change objects.
func (e *environment) actor(cmd *cobra.Command) *actor {
	a := &actor{environment: e, answers: bufio.NewReader(io.LimitReader(e.In, maxAnswers))}
	cmd.ValidArgsFunction = e.completeNames("elementalhosts")
	cmd.Flags().StringVar(&a.dryRun, "dry-run", "none", "none, or server: the API server checks the change, and does not store it")
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation")
	e.completeFlag(cmd, "dry-run", cobra.FixedCompletions([]string{"none", "server"}, cobra.ShellCompDirectiveNoFileComp))
	return a
}

// connect checks the flags, and connects to the management cluster.
func (a *actor) connect() (err error) {
	if a.dryRun != "none" && a.dryRun != "server" {
		return fmt.Errorf("--dry-run is %q; it must be none or server", a.dryRun)
	}
	if a.namespace, err = a.environment.namespace(); err != nil {
		return err
	}
	a.client, err = a.environment.client()
	return err
}

// hosts reads the host that is named, or those that are selected.
func (a *actor) hosts(ctx context.Context, args []string) ([]infrav1.ElementalHost, error) {
	if (len(args) == 1) == (a.selector != "") {
		return nil, errors.New("name one host, or select hosts by -l")
	}
	if len(args) == 1 {
		host, err := change.Host(ctx, a.client, a.namespace, args[0])
		if err != nil {
			return nil, err
		}
		return []infrav1.ElementalHost{*host}, nil
	}
	selector, err := a.labels()
	if err != nil {
		return nil, err
	}
	list := &infrav1.ElementalHostList{}
	if err := a.client.List(ctx, list, client.InNamespace(a.namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxHosts)); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	switch {
	case list.Continue != "":
		return nil, fmt.Errorf("more than %d hosts have these labels: select fewer", maxHosts)
	case len(list.Items) == 0:
		return nil, fmt.Errorf("no host of namespace %s has these labels", a.namespace)
	}
	return list.Items, nil
}

func (a *actor) labels() (labels.Selector, error) {
	selector, err := labels.Parse(a.selector)
	if err != nil {
		return nil, fmt.Errorf("reading --selector: %w", err)
	}
	return selector, nil
}

// each plans and makes a change of each host. A host that is refused does not keep the others
// from being changed.
func (a *actor) each(ctx context.Context, hosts []infrav1.ElementalHost, plan planner) error {
	var failed []error
	for i := range hosts {
		s, err := change.Look(ctx, a.client, &hosts[i])
		if err == nil {
			err = a.do(ctx, func() (*change.Plan, error) { return plan(ctx, s) })
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// do makes a plan, prints it, has it confirmed and makes the change.
func (a *actor) do(ctx context.Context, plan func() (*change.Plan, error)) error {
	p, err := plan()
	if err != nil {
		return err
	}
	if err := a.print("%s: %s", p.Subject, p.Action); err != nil {
		return err
	}
	for _, effect := range p.Effects {
		if err := a.print("  %s", effect); err != nil {
			return err
		}
	}
	dryRun := a.dryRun == "server"
	if p.IsDestructive && !p.IsDone && !dryRun && !a.yes {
		if err := a.confirm(p); err != nil {
			return err
		}
	}
	if err := p.Apply(ctx, a.client, dryRun); err != nil {
		return err
	}
	if dryRun {
		return a.print("%s: with this change %s (server dry run)", p.Subject, p.Result(a.Clock.Now()))
	}
	return a.print("%s: now %s", p.Subject, p.Result(a.Clock.Now()))
}

// confirm has a person type the name of the object.
func (a *actor) confirm(p *change.Plan) error {
	fmt.Fprintf(a.ErrOut, "Type the name %s to go on: ", p.Name)
	answer, err := a.answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != p.Name {
		return fmt.Errorf("%s: nothing was done, because the change was not confirmed. Type the name when you are asked, or give --yes", p.Subject)
	}
	return nil
}

// print writes a line. Hosts report texts, so they are escaped.
func (e *environment) print(format string, args ...any) error {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	if _, err := fmt.Fprintln(e.Out, printers.EscapeTerminal(text)); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func (e *environment) printAll(lines []string) error {
	for _, line := range lines {
		if err := e.print("%s", line); err != nil {
			return err
		}
	}
	return nil
}
