package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// options are the manager's flags. Flags that other Cluster API providers have too have the
// same names.
type options struct {
	printVersion bool
	logs         *logs.Options
	manager      flags.ManagerOptions

	leaderElection leaderElectionOptions
	namespace      string
	watchFilter    string
	syncPeriod     time.Duration
	profiler       string
	contention     bool
	gcPercent      int
	healthAddr     string
	qps            float32
	burst          int
	webhook        webhookOptions
	concurrency    concurrencyOptions
	kubeVIP        kubeVIPOptions
	agentAPI       agentAPIOptions
	gateway        gatewayOptions
	inPlace        inPlaceOptions

	// shutdown bounds how long the manager takes to stop. No flag sets it.
	shutdown time.Duration
}

type leaderElectionOptions struct {
	enabled                             bool
	lease, renewDeadline, retryInterval time.Duration
}

type webhookOptions struct {
	port                       int
	certDir, certName, keyName string
}

type concurrencyOptions struct {
	cluster, machine, host, registration, remediation int
}

type kubeVIPOptions struct {
	repositories  []string
	requireDigest bool
}

type agentAPIOptions struct {
	address string
	// listener, if not nil, is used instead of listening at the address. No flag sets it.
	listener        net.Listener
	url             string
	disconnectGrace time.Duration
	enrolRate       float64
	enrolBurst      int
	connectionRate  float64
	connectionBurst int
	maxHandshakes   int
	unauthenticated int
	proxies         []string
	snapshotRelays  []string
	pingInterval    time.Duration
	pingTimeout     time.Duration
	binaries        []string
	downloads       int
	bundles         []string
	bundleDownloads int
}

func newOptions() *options { return &options{logs: logs.NewOptions(), shutdown: shutdownTimeout} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	logsv1.AddFlags(o.logs, fs)
	flags.AddManagerOptions(fs, &o.manager)
	fs.BoolVar(&o.printVersion, "version", false, "Print the version and exit.")

	fs.BoolVar(&o.leaderElection.enabled, "leader-elect", false, "Elect a leader, so that of several replicas one is active.")
	fs.DurationVar(&o.leaderElection.lease, "leader-elect-lease-duration", 15*time.Second, "How long others wait before they take over from a silent leader.")
	fs.DurationVar(&o.leaderElection.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader tries to renew before it gives up.")
	fs.DurationVar(&o.leaderElection.retryInterval, "leader-elect-retry-period", 2*time.Second, "How long to wait between tries.")

	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch; all when blank.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", fmt.Sprintf("Watch only objects whose label %s has this value; all when blank.", clusterv1.WatchLabel))
	fs.DurationVar(&o.syncPeriod, "sync-period", time.Hour, "How often every object is looked at without an event. Nothing depends on it.")

	fs.StringVar(&o.profiler, "profiler-address", "", "Address of a pprof server, such as localhost:6060; none when blank.")
	fs.BoolVar(&o.contention, "contention-profiling", false, "Record blocking for the profiler.")
	fs.IntVar(&o.gcPercent, "gc-percent", 40, "How much the memory in use may grow, in percent, before garbage is collected; Go's own default is 100. Connected hosts hold memory and make little garbage.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of /healthz and /readyz.")

	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Requests per second to the kube-apiserver, for each kind. The default is for thousands of hosts; API priority and fairness protects the server.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Requests in one burst to the kube-apiserver.")

	fs.IntVar(&o.webhook.port, "webhook-port", 9443, "Port of the webhook server; 0 for none.")
	fs.StringVar(&o.webhook.certDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Folder of the webhook server's certificate; read again when it changes.")
	fs.StringVar(&o.webhook.certName, "webhook-cert-name", "tls.crt", "File name of the certificate.")
	fs.StringVar(&o.webhook.keyName, "webhook-key-name", "tls.key", "File name of the key.")

	fs.StringSliceVar(&o.kubeVIP.repositories, "kube-vip-repositories", nil, "Repositories of images, such as registry.example.com/kube-vip, that kube-vip may come from, and those below them; any when blank.")
	fs.BoolVar(&o.kubeVIP.requireDigest, "kube-vip-require-digest", false, "Allow only images of kube-vip that have a digest.")

	fs.IntVar(&o.concurrency.cluster, "elementalcluster-concurrency", 10, "ElementalClusters to process at once.")
	fs.IntVar(&o.concurrency.machine, "elementalmachine-concurrency", 10, "ElementalMachines to process at once.")
	fs.IntVar(&o.concurrency.host, "elementalhost-concurrency", 10, "ElementalHosts to process at once.")
	fs.IntVar(&o.concurrency.registration, "elementalregistration-concurrency", 2, "ElementalRegistrations to process at once.")
	fs.IntVar(&o.concurrency.remediation, "elementalremediation-concurrency", 10, "ElementalRemediations to process at once.")

	fs.StringVar(&o.agentAPI.address, "agent-api-address", ":9444", "Address that the agent API listens on.")
	fs.StringVar(&o.agentAPI.url, "agent-api-url", "", "URL at which hosts reach the agent API, https://host[:port]. A registration can have its own; one that has none is not Ready while this is blank.")
	fs.DurationVar(&o.agentAPI.disconnectGrace, "agent-disconnect-grace", 120*time.Second, "How long an agent may be away before its host counts as disconnected.")
	fs.Float64Var(&o.agentAPI.enrolRate, "agent-enrol-rate", server.DefaultEnrolRate, "Enrolments per second from one address. Hosts behind one NAT share it.")
	fs.IntVar(&o.agentAPI.enrolBurst, "agent-enrol-burst", server.DefaultEnrolBurst, "Enrolments in one burst from one address.")
	fs.Float64Var(&o.agentAPI.connectionRate, "agent-api-connection-rate", server.DefaultConnectionRate, "New connections per second from one address (IPv6: one /64). Hosts behind one NAT share it.")
	fs.IntVar(&o.agentAPI.connectionBurst, "agent-api-connection-burst", server.DefaultConnectionBurst, "New connections in one burst from one address.")
	fs.IntVar(&o.agentAPI.maxHandshakes, "agent-api-max-handshakes", server.DefaultMaxHandshakes, "TLS handshakes with agents at a time; further connections wait. Those of an address that has half of them are closed.")
	fs.IntVar(&o.agentAPI.unauthenticated, "agent-api-max-unauthenticated", server.DefaultMaxUnauthenticated, "Open connections that have used no key of a known host. One address may have three quarters of them.")
	fs.StringSliceVar(&o.agentAPI.proxies, "agent-api-proxies", nil, "Networks (CIDR) of load balancers whose connections begin with a PROXY protocol header; blank for none. Whoever can connect from there can claim any address.")
	fs.StringSliceVar(&o.agentAPI.snapshotRelays, "snapshot-relay-endpoints", nil, "Storages of etcd snapshots, HOST:PORT, to which hosts may connect through the manager; blank for none. Only clusters whose destination has the route Manager use it.")
	fs.StringSliceVar(&o.agentAPI.binaries, "agent-binaries", []string{"/agents"}, "Folders with the agents that hosts can update themselves to; read again when they change.")
	fs.IntVar(&o.agentAPI.downloads, "agent-downloads", server.DefaultAgentDownloads, "Hosts that may fetch an agent at once.")
	fs.StringSliceVar(&o.agentAPI.bundles, "bundles", []string{"/bundles"}, "Folders with the bundles of Kubernetes that hosts can fetch; read again when they change.")
	fs.IntVar(&o.agentAPI.bundleDownloads, "bundle-downloads", server.DefaultBundleDownloads, "Hosts that may fetch a bundle at once.")
	fs.DurationVar(&o.agentAPI.pingInterval, "agent-ping-interval", server.DefaultPingAfter, "How long a connection may be silent before the manager checks that its host still answers. The kernel checks connections after 45 s, but only up to the next proxy; this check reaches the host behind it.")
	fs.DurationVar(&o.agentAPI.pingTimeout, "agent-ping-timeout", server.DefaultPingTimeout, "How long a host may take to answer this check before the connection counts as dead.")
	o.gateway.addFlags(fs)
	o.inPlace.addFlags(fs)
}

// validate returns an error that names the first invalid flag.
func (o *options) validate() error {
	for name, n := range map[string]int{
		"elementalcluster-concurrency":      o.concurrency.cluster,
		"elementalmachine-concurrency":      o.concurrency.machine,
		"elementalhost-concurrency":         o.concurrency.host,
		"elementalregistration-concurrency": o.concurrency.registration,
		"elementalremediation-concurrency":  o.concurrency.remediation,
		"kube-api-burst":                    o.burst,
		"gc-percent":                        o.gcPercent,
		"agent-enrol-burst":                 o.agentAPI.enrolBurst,
		"agent-api-connection-burst":        o.agentAPI.connectionBurst,
		"agent-api-max-handshakes":          o.agentAPI.maxHandshakes,
		"agent-api-max-unauthenticated":     o.agentAPI.unauthenticated,
		"agent-downloads":                   o.agentAPI.downloads,
		"bundle-downloads":                  o.agentAPI.bundleDownloads,
	} {
		if n < 1 {
			return fmt.Errorf("--%s must be at least 1", name)
		}
	}
	if o.qps <= 0 || o.agentAPI.enrolRate <= 0 || o.agentAPI.connectionRate <= 0 {
		return errors.New("--kube-api-qps, --agent-enrol-rate and --agent-api-connection-rate must be above 0")
	}
	if o.webhook.port < 0 || o.webhook.port > 65535 {
		return fmt.Errorf("--webhook-port must be between 0 and 65535")
	}
	for name, d := range map[string]time.Duration{
		"agent-disconnect-grace": o.agentAPI.disconnectGrace,
		"agent-ping-interval":    o.agentAPI.pingInterval,
		"agent-ping-timeout":     o.agentAPI.pingTimeout,
		"sync-period":            o.syncPeriod,
	} {
		if d <= 0 {
			return fmt.Errorf("--%s must be above 0", name)
		}
	}
	if _, err := o.agentAPI.proxyNetworks(); err != nil {
		return err
	}
	if _, err := o.agentAPI.relayEndpoints(); err != nil {
		return err
	}
	if _, err := o.kubeVIP.policy(); err != nil {
		return err
	}
	if err := o.gateway.validate(); err != nil {
		return err
	}
	if err := o.inPlace.validate(o.webhook.port); err != nil {
		return err
	}
	if o.agentAPI.url != "" && !isServerURL(o.agentAPI.url) {
		return fmt.Errorf("--agent-api-url must be https://host[:port], not %q", o.agentAPI.url)
	}
	return nil
}

// isServerURL reports whether a text is https://host[:port].
func isServerURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == ""
}

// policy parses --kube-vip-repositories.
func (o *kubeVIPOptions) policy() (kubevip.ImagePolicy, error) {
	policy, err := kubevip.NewImagePolicy(o.repositories, o.requireDigest)
	if err != nil {
		return kubevip.ImagePolicy{}, fmt.Errorf("--kube-vip-repositories must have repositories such as registry.example.com/kube-vip: %w", err)
	}
	return policy, nil
}

// proxyNetworks parses --agent-api-proxies.
func (o *agentAPIOptions) proxyNetworks() ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, 0, len(o.proxies))
	for _, text := range o.proxies {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--agent-api-proxies must have networks such as 192.0.2.0/24, not %q: %w", text, err)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// relayEndpoints parses --snapshot-relay-endpoints.
func (o *agentAPIOptions) relayEndpoints() (snapshotrelay.Endpoints, error) {
	endpoints, err := snapshotrelay.ParseEndpoints(o.snapshotRelays)
	if err != nil {
		return nil, fmt.Errorf("--snapshot-relay-endpoints must have storages such as s3.example.com:443: %w", err)
	}
	return endpoints, nil
}
