package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// maxCompletions is the number of names that a completion proposes.
	maxCompletions = 500
	// completionTimeout is how long a shell waits for names.
	completionTimeout = 3 * time.Second
)

// completeFlags proposes values for the flags of a command.
func (e *environment) completeFlags(cmd *cobra.Command) {
	e.completeFlag(cmd, "output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	e.completeFlag(cmd, "cluster", e.completeNames("clusters"))
	e.completeFlag(cmd, "registration", e.completeNames("elementalregistrations"))
	e.completeFlag(cmd, "state", cobra.FixedCompletions([]string{
		infrav1.AvailableReason, infrav1.ProvisionedReason, infrav1.BootstrappingReason, infrav1.ReservedReason, infrav1.PendingApprovalReason,
		infrav1.DisconnectedReason, infrav1.CordonedReason, infrav1.MaintenanceReason, infrav1.ResettingReason, infrav1.LeftoversReason,
		infrav1.AdoptableReason,
	}, cobra.ShellCompDirectiveNoFileComp))
}

// completeGlobalFlags proposes values for the flags of all commands.
func (e *environment) completeGlobalFlags(root *cobra.Command) {
	e.completeFlag(root, "namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return e.names(cmd.Context(), schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
	})
	e.completeFlag(root, "context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := e.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFlag does nothing for a flag that the command does not have.
func (e *environment) completeFlag(cmd *cobra.Command, name string, propose cobra.CompletionFunc) {
	if cmd.Flag(name) == nil {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(name, propose); err != nil {
		fmt.Fprintf(e.ErrOut, "Completing --%s: %v\n", name, err)
	}
}

// completeNames proposes names of objects in the namespace.
func (e *environment) completeNames(resource string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace, err := e.namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return e.names(cmd.Context(), kindOf(resource), client.InNamespace(namespace))
	}
}

// completeNamesOfFlag proposes names of objects in the namespace, whatever arguments there are.
func (e *environment) completeNamesOfFlag(resource string) cobra.CompletionFunc {
	names := e.completeNames(resource)
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, nil, word)
	}
}

func kindOf(resource string) schema.GroupVersionKind {
	switch resource {
	case "machines":
		return clusterv1.GroupVersion.WithKind("MachineList")
	case "clusters":
		return clusterv1.GroupVersion.WithKind("ClusterList")
	case "elementalregistrations":
		return infrav1.GroupVersion.WithKind("ElementalRegistrationList")
	default:
		return infrav1.GroupVersion.WithKind("ElementalHostList")
	}
}

// names lists names, and only their metadata.
func (e *environment) names(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]string, cobra.ShellCompDirective) {
	c, err := e.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list, append(options, client.Limit(maxCompletions))...); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
