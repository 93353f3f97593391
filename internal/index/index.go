// Package index defines the cache indexes that several packages use to look up objects,
// and registers them.
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
	// HostByKey finds ElementalHosts by the fingerprints of their current, next and
	// former keys.
	HostByKey = "spec.identity.keyFingerprint"
	// HostByMatchedKey finds ElementalHosts that were declared in advance and have not
	// enrolled, by the key fingerprint in spec.identity.match.
	HostByMatchedKey = "spec.identity.match.keyFingerprint"
	// HostByMatchedSerial finds ElementalHosts that were declared in advance, whether they
	// have enrolled or not, by the serial number in spec.identity.match.
	HostByMatchedSerial = "spec.identity.match.serialNumber"
	// PendingHost finds pending ElementalHosts by their ElementalRegistration. Hosts that
	// wait for re-adoption have the value ReadoptedHosts instead.
	PendingHost = "spec.approval"
	// HostByCluster finds ElementalHosts by the Cluster in their claim. Free hosts have the
	// value Free.
	HostByCluster = "spec.claim.clusterName"
	// HostByMachine finds ElementalHosts by the Machine in their claim.
	HostByMachine = "spec.claim.machineName"
	// HostByLabel finds ElementalHosts by the names of their labels.
	HostByLabel = "metadata.labels"
	// MachineByClaim finds ElementalMachines by the ID of their claim.
	MachineByClaim = "spec.hostRef.claimID"
	// ClusterByName finds ElementalClusters by the Cluster that they belong to.
	ClusterByName = "metadata.labels.cluster-name"
	// ClusterByEndpointHost finds ElementalClusters by the ElementalHost whose address is
	// their endpoint. Clusters whose endpoint is not ready and was never used also
	// have the value Seeking, unless they are of type Tunnel.
	ClusterByEndpointHost = "spec.controlPlaneEndpointPolicy.hostRef.name"
	// ClusterByTunnelName finds ElementalClusters of type Tunnel by the host of their
	// endpoint, in lower case. Anybody can write any name.
	ClusterByTunnelName = "spec.controlPlaneEndpoint.host"
	// ClusterByDomainLabel finds ElementalClusters by their failure-domain label.
	ClusterByDomainLabel = "spec.failureDomains.hostLabel"
	// MachineByCluster finds Machines by the Cluster that they belong to.
	MachineByCluster = "machine.metadata.labels.cluster-name"
	// TokenByHash finds token Secrets by the hash of the token.
	TokenByHash = "data.token-sha256"

	// Free is the value of HostByCluster for free hosts. It is not a valid name of an
	// object.
	Free = "/free"
	// Seeking is the value of ClusterByEndpointHost for clusters that need a host for their
	// endpoint. It is not a valid name of an object.
	Seeking = "/seeking"
	// ReadoptedHosts is a value of PendingHost. It is not a valid name of an object.
	ReadoptedHosts = "/readopted"
	// TokenHashKey is the key of the hash in a token Secret.
	TokenHashKey = "token-sha256"
)

// OfHosts returns the indexes of ElementalHosts that do not depend on their claim, with
// the functions that compute the values.
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
		{&infrav1.ElementalCluster{}, ClusterByTunnelName, tunnelName},
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

// hostKeys returns no keys for a host without a current key: the former keys of another
// machine must not authenticate the next one.
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

// PendingHosts returns the values of the index PendingHost.
func PendingHosts(o client.Object) []string {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || host.Spec.Approval != infrav1.ApprovalPending {
		return nil
	}
	if host.Spec.PendingReason == infrav1.PendingReadopted {
		// Anybody can ask to be re-adopted, so that must not use up the limit of a registration.
		return []string{ReadoptedHosts}
	}
	if ref := host.Spec.RegistrationRef; ref != nil {
		return []string{ref.Name}
	}
	if name := host.Labels[infrav1.RegistrationLabel]; name != "" {
		return []string{name}
	}
	return nil
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

// clusterName returns the value of the label that Cluster API sets on all objects of a
// Cluster.
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

// endpointHost adds the value Seeking if the endpoint is not ready and was never used. A
// free host is of no use for an endpoint that is in use or of type Tunnel.
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
	if !ready && !inUse && c.EndpointType() != infrav1.EndpointTypeTunnel {
		values = append(values, Seeking)
	}
	return values
}

func tunnelName(o client.Object) []string {
	c, ok := o.(*infrav1.ElementalCluster)
	if !ok || c.EndpointType() != infrav1.EndpointTypeTunnel || c.Spec.ControlPlaneEndpoint.Host == "" {
		return nil
	}
	return []string{strings.ToLower(c.Spec.ControlPlaneEndpoint.Host)}
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
