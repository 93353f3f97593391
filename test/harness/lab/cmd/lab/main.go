// Command lab runs a management cluster and hosts on this machine, see test/harness/lab/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const usage = `Usage: lab COMMAND [flags]

Commands:
  up                  make everything that is missing, enrol all hosts and make a cluster on them
  down                remove everything but caches; with --images the host images in Docker as well
  hosts               make Docker, the host image, the network and the hosts only
  enrol               install the agent on all hosts, or the newest one again, and wait until they are connected
  status              say what there is
  logs [FOLDER]       collect what explains a failure
  kubectl ARG...      run kubectl against the management cluster
  clusterctl ARG...   run clusterctl against the management cluster, with the lab's repositories

Flags:
`

// flags holds the flags of the command.
type flags struct {
	options       lab.Options
	labels        map[string]string
	cluster       string
	controlPlanes int
	workers       int
	images        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var f flags
	set := pflag.NewFlagSet("lab", pflag.ContinueOnError)
	set.SetInterspersed(len(args) == 0 || (args[0] != "kubectl" && args[0] != "clusterctl"))
	set.StringVar(&f.options.Name, "name", "", "name of the lab (LAB_NAME, default elemental)")
	set.IntVar(&f.options.Hosts, "hosts", 0, "how many hosts (LAB_HOSTS, default 6)")
	set.StringVar(&f.options.Subnet, "subnet", "", "network of the hosts (LAB_SUBNET, default 172.30.0.0/24)")
	set.StringVar(&f.options.Management, "management", "", "management cluster: host or kind (LAB_MANAGEMENT, default host)")
	set.StringVar(&f.options.Release, "release", "", "folder of this provider's release (LAB_RELEASE, default the newest in out/manifests)")
	set.StringVar(&f.options.State, "state", "", "folder for what the lab keeps (LAB_STATE)")
	set.StringToStringVar(&f.labels, "labels", nil, "labels of the ElementalHosts")
	set.StringVar(&f.cluster, "cluster", "demo", "name of the cluster that up makes; empty for none")
	set.IntVar(&f.controlPlanes, "control-planes", 1, "control-plane machines of the cluster")
	set.IntVar(&f.workers, "workers", 1, "worker machines of the cluster")
	set.BoolVar(&f.images, "images", false, "with down: remove host images too")
	set.Usage = func() { fmt.Fprint(os.Stderr, usage, set.FlagUsages()) }
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() == 0 {
		set.Usage()
		return errors.New("no command")
	}
	options, err := f.options.FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	l, err := lab.New(options)
	if err != nil {
		return err
	}
	return f.command(ctx, l, set.Arg(0), set.Args()[1:])
}

// command runs a subcommand.
func (f flags) command(ctx context.Context, l *lab.Lab, name string, args []string) error {
	show := func(text string, err error) error {
		if text != "" {
			fmt.Println(text)
		}
		return err
	}
	switch name {
	case "up":
		return f.up(ctx, l)
	case "down":
		return l.Down(ctx, f.images)
	case "hosts":
		image, err := l.Prepare(ctx)
		if err != nil {
			return err
		}
		return l.StartHosts(ctx, image)
	case "enrol":
		return f.enrol(ctx, l)
	case "status":
		return show(l.Status(ctx))
	case "logs":
		folder := filepath.Join("out", "lab-logs", time.Now().UTC().Format("20060102-150405"))
		if len(args) > 0 {
			folder = args[0]
		}
		return l.Logs(ctx, folder)
	case "kubectl":
		return show(l.KubectlInput(ctx, os.Stdin, args...))
	case "clusterctl":
		return show(l.Clusterctl(ctx, args...))
	}
	return fmt.Errorf("no command is named %q", name)
}

// up starts the lab and prints how to use it.
func (f flags) up(ctx context.Context, l *lab.Lab) error {
	if err := l.Up(ctx); err != nil {
		return err
	}
	version, err := l.Release()
	if err != nil {
		return err
	}
	if version != "" {
		if err := f.enrol(ctx, l); err != nil {
			return err
		}
	}
	if version != "" && f.cluster != "" {
		kubeconfig, err := l.CreateCluster(ctx, lab.Cluster{
			Name: f.cluster, ControlPlanes: f.controlPlanes, Workers: f.workers,
		})
		if err != nil {
			return err
		}
		fmt.Printf("Cluster %s:\nexport KUBECONFIG=%s\n\n", f.cluster, kubeconfig)
	}
	status, err := l.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Print(status)
	return nil
}

// enrol enrols all hosts with one registration.
func (f flags) enrol(ctx context.Context, l *lab.Lab) error {
	return l.Enrol(ctx, lab.Enrolment{Name: "lab", Labels: f.labels, Hosts: l.Hosts()})
}
