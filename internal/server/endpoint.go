package server

import (
	"context"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// maxEndpoint bounds host:port, as the API does.
	maxEndpoint = 520
	// maxCertificateName is that of a DNS name.
	maxCertificateName = 253
	// maxForSeconds bounds for how long something is said to have been so.
	maxForSeconds = 24 * 60 * 60
)

// hostName is what the API takes for the host of an endpoint, besides addresses.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`)

// endpointOf checks and converts what a host said of its cluster's endpoint, with
// times by the manager's clock; nil if it said nothing. What is no endpoint is
// refused rather than cut, because something is decided by it.
func endpointOf(in *protocol.EndpointReport, now time.Time) (*infrav1.HostEndpoint, error) {
	if in == nil {
		return nil, nil //nolint:nilnil // documented
	}
	for _, address := range []string{in.Kubeconfigs, in.Workload, in.Rejects} {
		if address != "" && !isHostPort(address) {
			return nil, errBadRequest("The report has an endpoint that is not host:port")
		}
	}
	out := &infrav1.HostEndpoint{
		Kubeconfigs: in.Kubeconfigs, Workload: in.Workload, Rejects: in.Rejects, Message: bounded(in.Message, protocol.MaxMessageBytes),
	}
	if p := in.Probe; p != nil {
		if !isHostPort(p.Endpoint) {
			return nil, errBadRequest("The report has a probe of what is not host:port")
		}
		out.Probe = &infrav1.EndpointProbe{
			Endpoint: p.Endpoint, Result: resultOf(p.Reachable), Since: sinceOf(p.ForSeconds, now),
			Message: bounded(p.Message, protocol.MaxProbeMessageBytes),
		}
	}
	if a := in.APIServer; a != nil {
		names, err := certificateNamesOf(a.CertificateNames)
		if err != nil {
			return nil, err
		}
		out.APIServer = &infrav1.HostAPIServer{Result: resultOf(a.Ready), Since: sinceOf(a.ForSeconds, now), CertificateNames: names}
	}
	return out, nil
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || len(address) > maxEndpoint {
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == "" || hostName.MatchString(host)
}

func resultOf(good bool) infrav1.ProbeResult {
	if good {
		return infrav1.ProbeReachable
	}
	return infrav1.ProbeUnreachable
}

func sinceOf(seconds int32, now time.Time) metav1.Time {
	ago := time.Duration(min(max(seconds, 0), maxForSeconds)) * time.Second
	return metav1.NewTime(now.UTC().Add(-ago).Truncate(time.Second))
}

// certificateNamesOf brings names into order, so that the same ones are the same.
func certificateNamesOf(in []string) ([]string, error) {
	if len(in) > protocol.MaxDevices {
		return nil, errBadRequest("The report has too many names of a certificate")
	}
	for _, name := range in {
		if name == "" || bounded(name, maxCertificateName) != name {
			return nil, errBadRequest("The report has a name of a certificate that is too long or none")
		}
	}
	names := slices.Clone(in)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// setEndpoint records what the host said of its cluster's endpoint, as far as it
// may say so. Changed tells whether that is to be written; it has to wait if the
// host changes its mind too often.
func (s *Server) setEndpoint(ctx context.Context, host *infrav1.ElementalHost, news *infrav1.HostEndpoint) (changed bool, err error) {
	if news == nil {
		return false, nil
	}
	after, err := s.believed(ctx, host, news)
	if err != nil {
		return false, err
	}
	key := client.ObjectKeyFromObject(host)
	before := host.Status.Endpoint
	changed = !equality.Semantic.DeepEqual(before, after)
	if changed && onlyEvidence(before, after) && s.presence.holdEvidence(key, news) {
		return false, nil
	}
	s.presence.dropEvidence(key)
	if changed {
		host.Status.Endpoint = after
	}
	return changed, nil
}

// believed is the part of the news that is the host's to tell: a host that was not
// claimed, or is shut out, has nothing to say of a cluster; only control-plane
// hosts are asked whether its endpoint answers; and none can say that something
// has been so before the host itself said otherwise, or before it was asked.
//
// While the cluster is not known its host is believed as far as its claim goes:
// it will not repeat itself when the cluster has been restored.
func (s *Server) believed(ctx context.Context, host *infrav1.ElementalHost, news *infrav1.HostEndpoint) (*infrav1.HostEndpoint, error) {
	claim, before := host.Spec.Claim, host.Status.Endpoint
	if claim == nil || claim.Phase != infrav1.ClaimBound || host.Spec.Approval != infrav1.ApprovalApproved ||
		host.Spec.Fence != nil || host.Spec.Lock != nil || !host.DeletionTimestamp.IsZero() {
		return before, nil
	}
	infra, err := s.infraCluster(ctx, host)
	if err != nil {
		return nil, err
	}
	out := news.DeepCopy()
	asked := infrav1.EndpointTypeHost
	var earliest metav1.Time
	if infra != nil {
		asked = plan.EndpointType(infra)
	}
	switch {
	case asked == infrav1.EndpointTypeExternal:
		return nil, nil //nolint:nilnil // such a host has nothing to say
	case asked == infrav1.EndpointTypeVIP:
		out = &infrav1.HostEndpoint{Kubeconfigs: out.Kubeconfigs, Message: out.Message}
	case infra != nil:
		ref := infra.Spec.ControlPlaneEndpointPolicy.HostRef
		earliest = ref.ChosenAt
		if ref.Name != host.Name {
			out.Workload = ""
		}
		if out.Probe != nil && out.Probe.Endpoint != plan.EndpointAddress(infra) {
			out.Probe = nil
		}
	}
	if !claim.Role.IsControlPlane() {
		out.Probe, out.APIServer = nil, nil
	}
	if claim.Role == infrav1.RoleWorker {
		out.Workload, out.Rejects = "", ""
	}
	keepSince(before, out, earliest)
	if equality.Semantic.DeepEqual(out, &infrav1.HostEndpoint{}) {
		return nil, nil //nolint:nilnil // the host follows no endpoint
	}
	return out, nil
}

// keepSince has a result that is the same as before be as old as it was, and one
// that is another no older than the one before or earliest.
func keepSince(before, after *infrav1.HostEndpoint, earliest metav1.Time) {
	if before == nil {
		before = &infrav1.HostEndpoint{}
	}
	if is, was := after.Probe, before.Probe; is != nil {
		if is.Since.Before(&earliest) {
			is.Since = earliest
		}
		if was != nil && was.Endpoint == is.Endpoint && (was.Result == is.Result || is.Since.Before(&was.Since)) {
			is.Since = was.Since
		}
	}
	if is, was := after.APIServer, before.APIServer; is != nil && was != nil && (was.Result == is.Result || is.Since.Before(&was.Since)) {
		is.Since = was.Since
	}
}

// onlyEvidence tells whether two states differ in evidence alone, which may come
// and go every second. Everything else is a step of a move, which waits for it.
func onlyEvidence(a, b *infrav1.HostEndpoint) bool {
	rest := func(e *infrav1.HostEndpoint) infrav1.HostEndpoint {
		if e == nil {
			return infrav1.HostEndpoint{}
		}
		return infrav1.HostEndpoint{Kubeconfigs: e.Kubeconfigs, Workload: e.Workload, Rejects: e.Rejects}
	}
	return rest(a) == rest(b)
}
