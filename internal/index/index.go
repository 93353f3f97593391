// Package index names the cache indexes that more than one package looks
// objects up by, and registers them.
package index

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// HostByKey finds ElementalHosts by the fingerprints of the key in use, of the
	// one that a rotation changes to, and of the one before.
	HostByKey = "spec.identity.keyFingerprint"
	// HostByMatchedKey finds ElementalHosts that were declared in advance, and that
	// no machine is, by the fingerprint of the key that may become them.
	HostByMatchedKey = "spec.identity.match.keyFingerprint"
	// HostByMatchedSerial finds ElementalHosts that were declared in advance by the
	// serial number of the machine that may become them, also when one is.
	HostByMatchedSerial = "spec.identity.match.serialNumber"
	// PendingHost finds pending ElementalHosts by their ElementalRegistration; those
	// that were adopted again also have the value ReadoptedHosts.
	PendingHost = "spec.approval"
	// HostByCluster finds ElementalHosts by the Cluster that has claimed them;
	// unclaimed ones have the value Free.
	HostByCluster = "spec.claim.clusterName"
	// HostByMachine finds ElementalHosts by the Machine that has claimed them.
	HostByMachine = "spec.claim.machineName"
	// HostByLabel finds ElementalHosts by the names of their labels.
	HostByLabel = "metadata.labels"
	// MachineByClaim finds ElementalMachines by the ID of their claim.
	MachineByClaim = "spec.hostRef.claimID"
	// ClusterByName finds ElementalClusters by the Cluster that they belong to.
	ClusterByName = "metadata.labels.cluster-name"
	// ClusterByEndpointHost finds ElementalClusters by the ElementalHost whose address
	// is their endpoint; those that look for one also have the value Seeking.
	ClusterByEndpointHost = "spec.controlPlaneEndpointPolicy.hostRef.name"
	// ClusterByDomainLabel finds ElementalClusters by the label of hosts that names
	// their failure domains.
	ClusterByDomainLabel = "spec.failureDomains.hostLabel"
	// MachineByCluster finds Machines by the Cluster that they belong to.
	MachineByCluster = "machine.metadata.labels.cluster-name"
	// TokenByHash finds token Secrets by the hash of the token.
	TokenByHash = "data.token-sha256"

	// Free is the value of HostByCluster for unclaimed hosts. It is not a valid
	// name of an object.
	Free = "/free"
	// Seeking is the value of ClusterByEndpointHost for clusters that look for a host.
	// It is not a valid name of an object.
	Seeking = "/seeking"
	// ReadoptedHosts is a value of PendingHost. It is not a valid name of an object.
	ReadoptedHosts = "/readopted"
	// TokenHashKey is the key of a token Secret that holds the hash.
	TokenHashKey = "token-sha256"
)

// OfHosts returns the indexes of ElementalHosts that do not depend on who has claimed
// them, with what tells a host's values.
func OfHosts() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		HostByKey:           hostKeys,
		HostByMatchedKey:    matchedKey,
		HostByMatchedSerial: matchedSerial,
		PendingHost:         PendingHosts,
	}
}

// Register adds all indexes. It must be called before the cache starts.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for name, values := range OfHosts() {
		if err := indexer.IndexField(ctx, &infrav1.ElementalHost{}, name, values); err != nil {
			return fmt.Errorf("adding index %s: %w", name, err)
		}
	}
	for _, i := range []struct {
		object client.Object
		name   string
		value  func(client.Object) []string
	}{
		{&infrav1.ElementalHost{}, HostByCluster, hostCluster},
		{&infrav1.ElementalHost{}, HostByMachine, hostMachine},
		{&infrav1.ElementalHost{}, HostByLabel, hostLabels},
		{&infrav1.ElementalMachine{}, MachineByClaim, machineClaim},
		{&infrav1.ElementalCluster{}, ClusterByName, clusterName},
		{&infrav1.ElementalCluster{}, ClusterByEndpointHost, endpointHost},
		{&infrav1.ElementalCluster{}, ClusterByDomainLabel, domainLabel},
		{&clusterv1.Machine{}, MachineByCluster, machineCluster},
		{&corev1.Secret{}, TokenByHash, tokenHash},
	} {
		if err := indexer.IndexField(ctx, i.object, i.name, i.value); err != nil {
			return fmt.Errorf("adding index %s: %w", i.name, err)
		}
	}
	return nil
}

// hostKeys has no keys of a host that no machine is: what was good for the last
// one says nothing about the next.
func hostKeys(o client.Object) []string {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || host.Spec.Identity == nil || host.Spec.Identity.KeyFingerprint == "" {
		return nil
	}
	id := host.Spec.Identity
	keys := []string{id.KeyFingerprint}
	for _, key := range []string{id.NextKeyFingerprint, id.FormerKeyFingerprint} {
		if key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func match(o client.Object) *infrav1.IdentityMatch {
	if host, ok := o.(*infrav1.ElementalHost); ok && host.Spec.Identity != nil {
		return host.Spec.Identity.Match
	}
	return nil
}

func matchedKey(o client.Object) []string {
	if m := match(o); m != nil && m.KeyFingerprint != "" && len(hostKeys(o)) == 0 {
		return []string{m.KeyFingerprint}
	}
	return nil
}

func matchedSerial(o client.Object) []string {
	if m := match(o); m != nil {
		if serial := strings.TrimSpace(m.SerialNumber); serial != "" {
			return []string{serial}
		}
	}
	return nil
}

// PendingHosts are the values of PendingHost.
func PendingHosts(o client.Object) []string {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || host.Spec.Approval != infrav1.ApprovalPending {
		return nil
	}
	var values []string
	if ref := host.Spec.RegistrationRef; ref != nil {
		values = append(values, ref.Name)
	} else if name := host.Labels[infrav1.RegistrationLabel]; name != "" {
		values = append(values, name)
	}
	if host.Spec.PendingReason == infrav1.PendingReadopted {
		values = append(values, ReadoptedHosts)
	}
	return values
}

func hostCluster(o client.Object) []string {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok {
		return nil
	}
	if host.Spec.Claim == nil {
		return []string{Free}
	}
	return []string{host.Spec.Claim.ClusterName}
}

func hostMachine(o client.Object) []string {
	if host, ok := o.(*infrav1.ElementalHost); ok && host.Spec.Claim != nil && host.Spec.Claim.MachineName != "" {
		return []string{host.Spec.Claim.MachineName}
	}
	return nil
}

func hostLabels(o client.Object) []string {
	if host, ok := o.(*infrav1.ElementalHost); ok {
		return slices.Collect(maps.Keys(host.Labels))
	}
	return nil
}

func machineClaim(o client.Object) []string {
	if m, ok := o.(*infrav1.ElementalMachine); ok && m.Spec.HostRef != nil {
		return []string{m.Spec.HostRef.ClaimID}
	}
	return nil
}

// clusterName goes by the label that the contract of Cluster API gives to
// everything of a Cluster.
func clusterName(o client.Object) []string {
	if c, ok := o.(*infrav1.ElementalCluster); ok && c.Labels[clusterv1.ClusterNameLabel] != "" {
		return []string{c.Labels[clusterv1.ClusterNameLabel]}
	}
	return nil
}

func machineCluster(o client.Object) []string {
	if m, ok := o.(*clusterv1.Machine); ok && m.Labels[clusterv1.ClusterNameLabel] != "" {
		return []string{m.Labels[clusterv1.ClusterNameLabel]}
	}
	return nil
}

// endpointHost takes a cluster for one that looks for a host if its endpoint is not
// ready and was in no use yet: hosts that are free are of no use to one that is.
func endpointHost(o client.Object) []string {
	c, ok := o.(*infrav1.ElementalCluster)
	if !ok {
		return nil
	}
	var values []string
	if ref := c.Spec.ControlPlaneEndpointPolicy.HostRef; ref != nil {
		values = append(values, ref.Name)
	}
	ready, inUse := true, false
	for i := range c.Status.Conditions {
		switch is := &c.Status.Conditions[i]; is.Type {
		case infrav1.ControlPlaneEndpointReadyCondition:
			ready = is.Status != "False"
		case infrav1.ControlPlaneEndpointFollowedCondition:
			inUse = true
		}
	}
	if !ready && !inUse {
		values = append(values, Seeking)
	}
	return values
}

func domainLabel(o client.Object) []string {
	c, ok := o.(*infrav1.ElementalCluster)
	if !ok {
		return nil
	}
	return []string{cmp.Or(c.Spec.FailureDomains.HostLabel, infrav1.DefaultFailureDomainLabel)}
}

func tokenHash(o client.Object) []string {
	if s, ok := o.(*corev1.Secret); ok && len(s.Data[TokenHashKey]) > 0 {
		return []string{string(s.Data[TokenHashKey])}
	}
	return nil
}
