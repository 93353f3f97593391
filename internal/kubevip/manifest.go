package kubevip

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	upstream "github.com/kube-vip/kube-vip/pkg/kubevip"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// DefaultImage is the version that the settings are written for and tested with.
	DefaultImage = "ghcr.io/kube-vip/kube-vip:v0.9.1"
	// PodName is the name of the static Pod. The kubelet appends the Node's name.
	PodName = "kube-vip"

	namespace = "kube-system"
	// systemNodeCritical keeps the kubelet from evicting the Pod. kubeadm sets the same
	// priority class for the API server.
	systemNodeCritical = "system-node-critical"
	// metricsAddress replaces kube-vip's default, :2112 on all addresses of the host. A
	// blank value would mean the default.
	metricsAddress = "127.0.0.1:2112"
	fileMode       = 0o600

	// Another host replaces a dead leader within leaseSeconds plus two retries. A leader
	// that loses the lease loses the address, so renewals get some time.
	leaseSeconds = 5
	renewSeconds = 3
	retrySeconds = 1

	// A router drops the route to a dead leader after holdSeconds. With kube-vip's default
	// of 30 s, clients would wait longer than the election takes.
	holdSeconds      = 9
	keepaliveSeconds = 3
)

// Facts are the inputs of a manifest that are neither in the ElementalCluster nor in the
// ElementalHost.
type Facts struct {
	// KubernetesVersion of the host's Machine. An invalid or blank one counts as at least
	// 1.29.
	KubernetesVersion string
	// OtherControlPlane: another control-plane host of the cluster is bootstrapped and can
	// take over the address. Each change restarts kube-vip on the initial host.
	OtherControlPlane bool
}

// File returns the manifest of kube-vip for a control-plane host of a cluster whose
// endpoint is of type VIP. An error says what is missing: the endpoint, the distribution or
// the interface. The host must not be bootstrapped then.
func File(cluster *infrav1.ElementalCluster, host *infrav1.ElementalHost, facts Facts) (protocol.File, error) {
	vip, endpoint := cluster.Spec.ControlPlaneEndpointPolicy.VIP, cluster.Spec.ControlPlaneEndpoint
	if vip == nil || endpoint.Host == "" || endpoint.Port == 0 {
		return protocol.File{}, errors.New("the virtual IP address is not known yet")
	}
	address, err := netip.ParseAddr(endpoint.Host)
	if err != nil {
		return protocol.File{}, fmt.Errorf("reading the virtual IP address: %w", err)
	}
	folder, credential := paths(vip.Distribution, host, facts)
	if folder == "" {
		return protocol.File{}, errors.New("spec.controlPlaneEndpointPolicy.vip.distribution is not known")
	}
	nic, why := Interface(vip, endpoint.Host, host)
	if why != "" {
		return protocol.File{}, errors.New("the host " + why)
	}
	config := configuration(address, endpoint.Port, nic)
	config.K8sConfigFile = credential
	if vip.Mode == infrav1.VIPModeBGP {
		announceByBGP(config, vip.BGP, host)
	} else {
		config.EnableARP = true
	}
	content, err := render(config, vip)
	if err != nil {
		return protocol.File{}, err
	}
	return protocol.File{Path: path.Join(folder, fileName), Mode: fileMode, Content: content}, nil
}

// configuration returns the settings of both modes. The leader is elected through the
// host's own API server, also in mode BGP: otherwise a host could announce the address
// before its API server runs, and its own join would reach itself.
func configuration(address netip.Addr, port int32, nic string) *upstream.Config {
	return &upstream.Config{
		Address:              address.String(),
		VIPSubnet:            strconv.Itoa(address.BitLen()),
		Port:                 uint16(port), //nolint:gosec // the API has bounds
		Interface:            nic,
		EnableControlPlane:   true,
		Namespace:            namespace,
		PrometheusHTTPServer: metricsAddress,
		KubernetesLeaderElection: upstream.KubernetesLeaderElection{
			EnableLeaderElection: true,
			LeaseName:            "plndr-cp-lock",
			LeaseDuration:        leaseSeconds,
			RenewDeadline:        renewSeconds,
			RetryPeriod:          retrySeconds,
		},
	}
}

func announceByBGP(config *upstream.Config, bgp *infrav1.VIPBGP, host *infrav1.ElementalHost) {
	config.EnableBGP = true
	config.BGPConfig.RouterID = routerID(host)
	if bgp == nil {
		return
	}
	config.BGPConfig.AS = uint32(bgp.LocalASN) //nolint:gosec // the API has bounds
	for _, peer := range bgp.Peers {
		router := peer.Address
		if strings.Contains(router, ":") {
			router = "[" + router + "]"
		}
		// The third field, a password, stays blank.
		config.BGPPeers = append(config.BGPPeers, fmt.Sprintf("%s:%d::%t", router, peer.ASN, peer.MultiHop == infrav1.MultiHopEnabled))
	}
}

// routerID returns the host's first IPv4 address (RFC 4271, 4.2), or a number derived from
// the host's name: it need only be unique (RFC 6286).
func routerID(host *infrav1.ElementalHost) string {
	for _, a := range host.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == clusterv1.MachineInternalIP && ip.Is4() {
			return ip.String()
		}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(host.Namespace + "/" + host.Name))
	id := sum.Sum(nil)
	// The first byte is 1 to 127, which excludes 0.0.0.0 and multicast addresses.
	return net.IPv4(id[0]&0x7f|1, id[1], id[2], id[3]).String()
}

// render returns the Pod of kube-vip's generator, with the fields that the generator
// can't set.
func render(config *upstream.Config, vip *infrav1.EndpointVIP) (string, error) {
	_, tag, _ := strings.Cut(DefaultImage, ":")
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(upstream.GeneratePodManifestFromConfig(config, tag, false)), pod); err != nil {
		return "", fmt.Errorf("reading the Pod that kube-vip's generator wrote: %w", err)
	}
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].HostPath == nil {
		return "", errors.New("kube-vip's generator wrote a Pod of another shape than v0.9.1 does")
	}
	pod.Name = PodName
	pod.Spec.PriorityClassName = systemNodeCritical
	// Without a type the kubelet would create a directory in place of a missing credential,
	// and kubeadm would fail to write the file.
	pod.Spec.Volumes[0].HostPath.Type = new(corev1.HostPathFile)
	container := &pod.Spec.Containers[0]
	if vip.Image != "" {
		container.Image = vip.Image
	}
	container.VolumeMounts[0].ReadOnly = true
	if config.EnableBGP {
		// The generator can't write these.
		container.Env = append(container.Env,
			corev1.EnvVar{Name: "bgp_hold_time", Value: strconv.Itoa(holdSeconds)},
			corev1.EnvVar{Name: "bgp_keepalive_interval", Value: strconv.Itoa(keepaliveSeconds)})
	}
	container.Env = environment(container.Env, vip.ExtraEnv)
	return marshal(pod)
}

// environment returns the variables of the generator, without those that have no value.
// The user's variables replace those of the same name.
func environment(env []corev1.EnvVar, extra []infrav1.EnvVar) []corev1.EnvVar {
	env = slices.DeleteFunc(env, func(v corev1.EnvVar) bool {
		unset := v.ValueFrom == nil && v.Value == "" || v.Name == "bgp_peeras" && v.Value == "0"
		return unset || slices.ContainsFunc(extra, func(e infrav1.EnvVar) bool { return e.Name == v.Name })
	})
	for _, e := range extra {
		env = append(env, corev1.EnvVar{Name: e.Name, Value: e.Value})
	}
	return env
}

// marshal returns the Pod as YAML, without its empty status.
func marshal(pod *corev1.Pod) (string, error) {
	raw, err := yaml.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("writing the Pod: %w", err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(raw, &fields); err != nil {
		return "", fmt.Errorf("reading the Pod back: %w", err)
	}
	delete(fields, "status")
	raw, err = yaml.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("writing the Pod: %w", err)
	}
	return string(raw), nil
}
