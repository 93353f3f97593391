package kubeadm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// DefaultPort is the default port of an API server.
const DefaultPort = 6443

// Node is the nodeRegistration of kubeadm's configuration.
type Node struct {
	Name   string
	Labels map[string]string
	// Taints is nil if kubeadm's default taints apply.
	Taints []corev1.Taint
}

// Local is the localAPIEndpoint of kubeadm's configuration: the address of a control-plane node's
// API server.
type Local struct {
	// Advertised is invalid if kubeadm uses the address of the default route.
	Advertised netip.Addr
	Port       uint16
}

// Init is the configuration of kubeadm init.
type Init struct {
	Node    Node
	Local   Local
	Cluster Cluster
}

// Join is the configuration of kubeadm join.
type Join struct {
	Node Node
	// Local is nil for a worker.
	Local *Local
	// Endpoint is the host:port at which the node discovers the cluster.
	Endpoint string
	// Token is a bootstrap token, in the form id.secret.
	Token string
	// Hashes pin the cluster's CA, in the form of certs.Hash.
	Hashes []string
}

// Cluster is the ClusterConfiguration, which all nodes share.
type Cluster struct {
	// Text is the YAML document, for the ConfigMap kube-system/kubeadm-config.
	Text []byte `json:"-"`

	KubernetesVersion    string `json:"kubernetesVersion"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	Networking           struct {
		ServiceSubnet string `json:"serviceSubnet"`
		DNSDomain     string `json:"dnsDomain"`
	} `json:"networking"`
	APIServer struct {
		CertSANs []string `json:"certSANs"`
	} `json:"apiServer"`
}

// ReadCluster parses the document in the ConfigMap kube-system/kubeadm-config.
func ReadCluster(text []byte) (Cluster, error) {
	c := Cluster{Text: text}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return Cluster{}, fmt.Errorf("reading a ClusterConfiguration: %w", err)
	}
	if c.KubernetesVersion == "" {
		return Cluster{}, errors.New("reading a ClusterConfiguration: it has no kubernetesVersion")
	}
	return c, nil
}

// SetVersion returns a ClusterConfiguration with another version of Kubernetes, or the same text
// if it has that version.
func SetVersion(text []byte, version string) ([]byte, error) {
	c, err := ReadCluster(text)
	if err != nil || c.KubernetesVersion == version {
		return text, err
	}
	all := map[string]any{}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("reading a ClusterConfiguration: %w", err)
	}
	all["kubernetesVersion"] = version
	if text, err = yaml.Marshal(all); err != nil {
		return nil, fmt.Errorf("writing a ClusterConfiguration: %w", err)
	}
	return text, nil
}

// documents holds the YAML documents of a file by kind.
type documents map[string][]byte

// split separates YAML documents. It ignores documents without a kind.
func split(content []byte) (documents, error) {
	all := documents{}
	for part := range bytes.SplitSeq(append([]byte("\n"), content...), []byte("\n---")) {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(part, &head); err != nil {
			return nil, fmt.Errorf("parsing YAML: %w", err)
		}
		if head.Kind != "" {
			all[head.Kind] = part
		}
	}
	return all, nil
}

// registration has the fields of nodeRegistration.
type registration struct {
	Name             string          `json:"name"`
	Taints           []corev1.Taint  `json:"taints"`
	KubeletExtraArgs json.RawMessage `json:"kubeletExtraArgs"`
}

// local has the fields of localAPIEndpoint.
type local struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         uint16 `json:"bindPort"`
}

func (d documents) read(kind string, into any) error {
	text, ok := d[kind]
	if !ok {
		return fmt.Errorf("it has no %s", kind)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading its %s: %w", kind, err)
	}
	return nil
}

func (d documents) init() (*Init, error) {
	var own struct {
		NodeRegistration registration `json:"nodeRegistration"`
		LocalAPIEndpoint local        `json:"localAPIEndpoint"`
	}
	if err := d.read("InitConfiguration", &own); err != nil {
		return nil, err
	}
	cluster, err := ReadCluster(d["ClusterConfiguration"])
	if err != nil {
		return nil, err
	}
	if cluster.ControlPlaneEndpoint == "" {
		return nil, errors.New("its ClusterConfiguration has no controlPlaneEndpoint")
	}
	node, err := own.NodeRegistration.node()
	if err != nil {
		return nil, err
	}
	at, err := own.LocalAPIEndpoint.local()
	if err != nil {
		return nil, err
	}
	return &Init{Node: node, Local: at, Cluster: cluster}, nil
}

func (d documents) join() (*Join, error) {
	var own struct {
		NodeRegistration registration `json:"nodeRegistration"`
		Discovery        struct {
			BootstrapToken struct {
				Token             string   `json:"token"`
				APIServerEndpoint string   `json:"apiServerEndpoint"`
				CACertHashes      []string `json:"caCertHashes"`
			} `json:"bootstrapToken"`
		} `json:"discovery"`
		ControlPlane *struct {
			LocalAPIEndpoint local `json:"localAPIEndpoint"`
		} `json:"controlPlane"`
	}
	if err := d.read("JoinConfiguration", &own); err != nil {
		return nil, err
	}
	token := own.Discovery.BootstrapToken
	j := &Join{Endpoint: token.APIServerEndpoint, Token: token.Token, Hashes: token.CACertHashes}
	if j.Endpoint == "" || j.Token == "" || len(j.Hashes) == 0 {
		return nil, errors.New("its JoinConfiguration does not discover the cluster by an endpoint, a token and a CA hash")
	}
	var err error
	if j.Node, err = own.NodeRegistration.node(); err != nil {
		return nil, err
	}
	if own.ControlPlane != nil {
		at, err := own.ControlPlane.LocalAPIEndpoint.local()
		if err != nil {
			return nil, err
		}
		j.Local = &at
	}
	return j, nil
}

func (l local) local() (Local, error) {
	at := Local{Port: DefaultPort}
	if l.BindPort != 0 {
		at.Port = l.BindPort
	}
	if l.AdvertiseAddress == "" {
		return at, nil
	}
	var err error
	if at.Advertised, err = netip.ParseAddr(l.AdvertiseAddress); err != nil {
		return Local{}, fmt.Errorf("its localAPIEndpoint: %w", err)
	}
	return at, nil
}

func (r registration) node() (Node, error) {
	labels, err := r.labels()
	if err != nil {
		return Node{}, err
	}
	return Node{Name: r.Name, Labels: labels, Taints: r.Taints}, nil
}

// labels returns the Node labels in the kubelet's arguments. The arguments are a list of names and
// values in v1beta4 of kubeadm's configuration, and an object in v1beta3.
func (r registration) labels() (map[string]string, error) {
	var text string
	list, object := []struct{ Name, Value string }{}, map[string]string{}
	switch {
	case len(r.KubeletExtraArgs) == 0:
	case json.Unmarshal(r.KubeletExtraArgs, &list) == nil:
		for _, argument := range list {
			if argument.Name == "node-labels" {
				text = argument.Value
			}
		}
	case json.Unmarshal(r.KubeletExtraArgs, &object) == nil:
		text = object["node-labels"]
	default:
		return nil, errors.New("its kubeletExtraArgs are neither a list nor an object")
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			labels[key] = value
		}
	}
	return labels, nil
}
