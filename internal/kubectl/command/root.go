package command

import (
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Options are what a program gives to its commands.
type Options struct {
	genericiooptions.IOStreams

	// Version of the program.
	Version string
	Clock   clock.WithTicker
}

// environment is what commands share.
type environment struct {
	Options

	flags *genericclioptions.ConfigFlags
}

// New returns the command `kubectl elemental`.
func New(o Options) *cobra.Command {
	e := &environment{Options: o, flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:   "kubectl-elemental",
		Short: "See, explain and operate hosts of the Cluster API provider Elemental",
		Long: "Shows the fleet of ElementalHosts, explains what a Machine, a host or a Cluster waits for, and prints\n" +
			"what enrols machines.\n" +
			"Commands that change something look first, say what follows, and refuse what would go wrong.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl elemental"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	e.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(e.hosts(), e.explain(), e.enrol(), e.version())
	root.AddCommand(e.approve(), reject(e), cordon(e), uncordon(e), maintenance(e), fence(e), unfence(e), release(e), replace(e))
	root.AddCommand(e.token(), e.endpoint(), e.hostLogs(), e.supportBundle())
	e.completeGlobalFlags(root)
	return root
}

func (e *environment) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := fmt.Fprintln(e.Out, e.Version); err != nil {
				return fmt.Errorf("printing the version: %w", err)
			}
			return nil
		},
	}
}

// client returns a client of the management cluster that reads from the API server.
func (e *environment) client() (client.WithWatch, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return c, nil
}

// namespace returns the namespace of --namespace, or of the kubeconfig's context.
func (e *environment) namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}
