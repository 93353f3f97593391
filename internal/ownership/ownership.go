// Package ownership checks that two objects refer to each other.
//
// An owner reference alone proves nothing: whoever may create an object may name any owner
// in it. So the owner has to name the object too. It does no I/O.
package ownership

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// InfraClusterKind is the kind in a Cluster's infrastructureRef.
	InfraClusterKind = "ElementalCluster"
	// InfraMachineKind is the kind in a Machine's infrastructureRef.
	InfraMachineKind = "ElementalMachine"
)

// IsInfraCluster reports whether the Cluster and the ElementalCluster refer to each other.
func IsInfraCluster(infra *infrav1.ElementalCluster, cluster *clusterv1.Cluster) bool {
	return NamesInfraCluster(cluster, infra) && owns("Cluster", cluster, infra)
}

// NamesInfraCluster reports whether the Cluster's infrastructureRef is the ElementalCluster.
func NamesInfraCluster(cluster *clusterv1.Cluster, infra *infrav1.ElementalCluster) bool {
	return names(cluster.Spec.InfrastructureRef, InfraClusterKind, cluster, infra)
}

// IsInfraMachine reports whether the Machine and the ElementalMachine refer to each other.
func IsInfraMachine(infra *infrav1.ElementalMachine, machine *clusterv1.Machine) bool {
	return NamesInfraMachine(machine, infra) && owns("Machine", machine, infra)
}

// NamesInfraMachine reports whether the Machine's infrastructureRef is the ElementalMachine.
func NamesInfraMachine(machine *clusterv1.Machine, infra *infrav1.ElementalMachine) bool {
	return names(machine.Spec.InfrastructureRef, InfraMachineKind, machine, infra)
}

// InfraClusterMismatch returns what has to be corrected so that the Cluster and the
// ElementalCluster, whose owner reference names the Cluster, refer to each other; blank if
// they do.
func InfraClusterMismatch(infra *infrav1.ElementalCluster, cluster *clusterv1.Cluster) string {
	return mismatch("Cluster", cluster, cluster.Spec.InfrastructureRef, InfraClusterKind, infra)
}

// InfraMachineMismatch is InfraClusterMismatch for a Machine and an ElementalMachine.
func InfraMachineMismatch(infra *infrav1.ElementalMachine, machine *clusterv1.Machine) string {
	return mismatch("Machine", machine, machine.Spec.InfrastructureRef, InfraMachineKind, infra)
}

func mismatch(ownerKind string, owner metav1.Object, ref clusterv1.ContractVersionedObjectReference, kind string, object metav1.Object) string {
	switch {
	case !ref.IsDefined():
		return fmt.Sprintf("This object has %s %s as owner, whose spec.infrastructureRef is not set yet: it has to name %s %s",
			ownerKind, owner.GetName(), kind, object.GetName())
	case !names(ref, kind, owner, object):
		return fmt.Sprintf("This object has %s %s as owner, but does nothing for it, because spec.infrastructureRef there names %s %s: "+
			"correct the reference if it has to name %s %s, else delete this object", ownerKind, owner.GetName(), ref.Kind, ref.Name, kind, object.GetName())
	case !owns(ownerKind, owner, object):
		return fmt.Sprintf("The owner reference to %s %s has the UID of another object: compare metadata.ownerReferences here with metadata.uid there, which is %s. "+
			"Cluster API corrects the reference unless the %s is paused", ownerKind, owner.GetName(), owner.GetUID(), ownerKind)
	default:
		return ""
	}
}

func names(ref clusterv1.ContractVersionedObjectReference, kind string, from, to metav1.Object) bool {
	return ref.APIGroup == infrav1.GroupVersion.Group && ref.Kind == kind && ref.Name == to.GetName() && from.GetNamespace() == to.GetNamespace()
}

// owns reports whether one of the object's owner references is the owner, and not another
// object that had the same name before.
func owns(kind string, owner, object metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return group(ref) == clusterv1.GroupVersion.Group && ref.Kind == kind && ref.Name == owner.GetName() && ref.UID == owner.GetUID()
	})
}

// IsBootstrapData reports whether a Secret of the Machine's cluster can be the Machine's
// bootstrap data. By Cluster API's contract, the bootstrap configuration that the Machine
// refers to controls the Secret. The data of a Machine without a configuration comes from
// a user: no object of Cluster API owns it, and it has no name by which Cluster API finds
// kubeconfigs and CA keys.
func IsBootstrapData(data *corev1.Secret, machine *clusterv1.Machine) bool {
	if data.Type != clusterv1.ClusterSecretType || data.Labels[clusterv1.ClusterNameLabel] != machine.Spec.ClusterName || data.Namespace != machine.Namespace {
		return false
	}
	if config := machine.Spec.Bootstrap.ConfigRef; config.IsDefined() {
		controller := metav1.GetControllerOfNoCopy(data)
		return controller != nil && group(*controller) == config.APIGroup && controller.Kind == config.Kind && controller.Name == config.Name
	}
	return !secret.HasPurposeSuffix(data.Name) && !slices.ContainsFunc(data.OwnerReferences, func(ref metav1.OwnerReference) bool {
		g := group(ref)
		return g == clusterv1.GroupVersion.Group || strings.HasSuffix(g, "."+clusterv1.GroupVersion.Group)
	})
}

// group returns the API group of an owner reference; blank if it can't be parsed.
func group(ref metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}
