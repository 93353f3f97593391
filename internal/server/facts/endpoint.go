package facts

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// maxEndpoint bounds host:port, as the API does.
	maxEndpoint = 520
	// maxAddress bounds IP:port, as the API does.
	maxAddress = 53
	// maxCertificateName is that of a DNS name.
	maxCertificateName = 253
	// maxForSeconds bounds the reported age of a result.
	maxForSeconds = 24 * 60 * 60
)

// hostName matches what the CRD accepts as an endpoint's host, apart from IP addresses.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`)

// EndpointOf checks and converts a report about the cluster's control plane endpoint; nil
// if none was sent. Ages become times of the manager's clock.
func EndpointOf(in *protocol.EndpointReport, now time.Time) (*infrav1.HostEndpoint, error) {
	if in == nil {
		return nil, nil
	}
	for _, reported := range []string{in.Kubeconfigs, in.Workload, in.Rejects, in.Local} {
		if reported != "" && !isHostPort(reported) {
			return nil, problem.BadRequest("The report has an endpoint that is not host:port")
		}
	}
	out := &infrav1.HostEndpoint{
		Kubeconfigs: in.Kubeconfigs, Workload: in.Workload, Rejects: in.Rejects, Local: in.Local,
		Message: bounded(in.Message, protocol.MaxMessageBytes),
	}
	if p := in.Probe; p != nil {
		if !isHostPort(p.Endpoint) {
			return nil, problem.BadRequest("The report has a probe of what is not host:port")
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
		at, err := apiServerAddressOf(a.Address)
		if err != nil {
			return nil, err
		}
		out.APIServer = &infrav1.HostAPIServer{Result: resultOf(a.Ready), Since: sinceOf(a.ForSeconds, now), Address: at, CertificateNames: names}
	}
	return out, nil
}

// apiServerAddressOf checks and normalizes IP:port; it may be blank.
func apiServerAddressOf(in string) (string, error) {
	if in == "" {
		return "", nil
	}
	at, err := netip.ParseAddrPort(in)
	if err != nil || len(in) > maxAddress || at.Port() == 0 || at.Addr().Zone() != "" {
		return "", problem.BadRequest("The report has an address of an API server that is not IP:port")
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String(), nil
}

// isOwnAddress reports whether IP:port is at an address that the host has reported, where
// other hosts can reach it.
func isOwnAddress(host *infrav1.ElementalHost, at string) bool {
	parsed, err := netip.ParseAddrPort(at)
	if err != nil || !address.IsUsable(parsed.Addr()) {
		return false
	}
	has, _ := address.Has(host, parsed.Addr().String())
	return has
}

func isHostPort(in string) bool {
	host, port, err := net.SplitHostPort(in)
	if err != nil || len(in) > maxEndpoint {
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

// certificateNamesOf sorts names, so that a different order is no change.
func certificateNamesOf(in []string) ([]string, error) {
	if len(in) > protocol.MaxDevices {
		return nil, problem.BadRequest("The report has too many names of a certificate")
	}
	for _, name := range in {
		if name == "" || bounded(name, maxCertificateName) != name {
			return nil, problem.BadRequest("The report has a name of a certificate that is too long or none")
		}
	}
	names := slices.Clone(in)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MayReportEndpoint reports whether a host's reports about an endpoint are accepted: its
// claim must be Bound or Held, and it must be approved, and neither fenced, locked nor
// deleted.
func MayReportEndpoint(host *infrav1.ElementalHost) bool {
	if !host.IsBoundOrHeld() || host.Spec.Approval != infrav1.ApprovalApproved ||
		host.Spec.Fence != nil || host.Spec.Lock != nil || !host.DeletionTimestamp.IsZero() {
		return false
	}
	return true
}

// AcceptedEndpoint returns the part of a report that the host is entitled to make, or
// nil. Only control-plane hosts report whether the endpoint answers. No result is older
// than the host's last different result, or than the choice of the endpoint's host.
//
// infra is nil while the cluster is unknown. Then the report is accepted as far as the
// claim allows, because the host does not repeat it after the cluster is restored.
func AcceptedEndpoint(host *infrav1.ElementalHost, infra *infrav1.ElementalCluster, reported *infrav1.HostEndpoint) *infrav1.HostEndpoint {
	claim := host.Spec.Claim
	out := reported.DeepCopy()
	kind := infrav1.EndpointTypeHost
	var earliest metav1.Time
	if infra != nil {
		kind = infra.EndpointType()
	}
	switch {
	case kind == infrav1.EndpointTypeExternal || kind == "":
		return nil
	case kind == infrav1.EndpointTypeVIP:
		out = &infrav1.HostEndpoint{Kubeconfigs: out.Kubeconfigs, Message: out.Message}
	case kind == infrav1.EndpointTypeTunnel:
		out.Workload, out.Rejects = "", ""
	case infra != nil:
		ref := infra.Spec.ControlPlaneEndpointPolicy.HostRef
		earliest = ref.ChosenAt
		if ref.Name != host.Name {
			out.Workload = ""
		}
		out.Local = ""
	}
	if infra != nil && out.Probe != nil && out.Probe.Endpoint != infra.Spec.ControlPlaneEndpoint.HostPort() {
		out.Probe = nil
	}
	if out.APIServer != nil && (infra != nil && kind != infrav1.EndpointTypeTunnel || !isOwnAddress(host, out.APIServer.Address)) {
		out.APIServer.Address = ""
	}
	if !claim.Role.IsControlPlane() {
		out.Probe, out.APIServer = nil, nil
	}
	if claim.Role == infrav1.RoleWorker {
		out.Workload, out.Rejects = "", ""
	}
	adjustSince(host.Status.Endpoint, out, earliest)
	if equality.Semantic.DeepEqual(out, &infrav1.HostEndpoint{}) {
		return nil
	}
	return out
}

// adjustSince keeps the start time of a result that did not change. A result that changed
// starts no earlier than the previous one, and a probe no earlier than earliest.
func adjustSince(before, after *infrav1.HostEndpoint, earliest metav1.Time) {
	if before == nil {
		before = &infrav1.HostEndpoint{}
	}
	if probe, previous := after.Probe, before.Probe; probe != nil {
		if probe.Since.Before(&earliest) {
			probe.Since = earliest
		}
		if previous != nil && previous.Endpoint == probe.Endpoint && (previous.Result == probe.Result || probe.Since.Before(&previous.Since)) {
			probe.Since = previous.Since
		}
	}
	server, previous := after.APIServer, before.APIServer
	if server != nil && previous != nil && (previous.Result == server.Result || server.Since.Before(&previous.Since)) {
		server.Since = previous.Since
	}
}

// OnlyEvidenceDiffers reports whether two states have the same addresses. Evidence may
// change every second and can be deferred; an address is a step that something waits for.
func OnlyEvidenceDiffers(a, b *infrav1.HostEndpoint) bool {
	addresses := func(e *infrav1.HostEndpoint) infrav1.HostEndpoint {
		if e == nil {
			return infrav1.HostEndpoint{}
		}
		only := infrav1.HostEndpoint{Kubeconfigs: e.Kubeconfigs, Workload: e.Workload, Rejects: e.Rejects, Local: e.Local}
		if e.APIServer != nil && e.APIServer.Address != "" {
			only.APIServer = &infrav1.HostAPIServer{Address: e.APIServer.Address}
		}
		return only
	}
	return equality.Semantic.DeepEqual(addresses(a), addresses(b))
}
