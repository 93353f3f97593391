package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// Check validates bootstrap data.
func (c *Clusters) Check(data []byte, format string) error {
	_, err := kubeadm.Read(data, format, "host", "host")
	return err
}

// Bootstrap simulates kubeadm with bootstrap data.
func (c *Clusters) Bootstrap(ctx context.Context, m fleet.Machine, data []byte, format string, progress func(step string)) error {
	job, err := kubeadm.Read(data, format, m.Name, m.Hostname)
	if err != nil {
		return err
	}
	h := &host{all: c, machine: m, power: true, network: true}
	if err := c.adopt(h); err != nil {
		return err
	}
	progress("files")
	if err := writeFiles(m.Root, job.Files); err != nil {
		return err
	}
	if job.Init != nil {
		progress("kubeadm init")
		if err := c.initialize(ctx, h, job); err != nil {
			return fmt.Errorf("kubeadm init: %w", err)
		}
	} else {
		progress("kubeadm join")
		if err := c.join(ctx, h, job); err != nil {
			return fmt.Errorf("kubeadm join: %w", err)
		}
	}
	return write(m.Root, sentinel, []byte("success\n"))
}

// adopt records a host, so that Halt and Network affect it.
func (c *Clusters) adopt(h *host) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.New("the simulation has ended")
	}
	if former := c.hosts[h.machine.Name]; former != nil && former.cluster != nil {
		return errors.New("the host is a node already: it has to be reset first")
	}
	c.hosts[h.machine.Name] = h
	c.site[h.machine.Address] = true
	return nil
}

// initialize makes a cluster of one host.
func (c *Clusters) initialize(ctx context.Context, h *host, job *kubeadm.Job) error {
	all, err := authorities(job)
	if err != nil {
		return err
	}
	init := job.Init
	if err := h.prepare(init.Node, &init.Local, init.Cluster, all); err != nil {
		return err
	}
	one := c.newCluster(all)
	one.mu.Lock()
	defer one.mu.Unlock()
	defer func() {
		if len(one.hosts) == 0 {
			one.drop()
		}
	}()
	endpoint := "https://" + init.Cluster.ControlPlaneEndpoint
	info, err := certs.Info(endpoint, all.cluster.Certificate)
	if err != nil {
		return err
	}
	for _, object := range objects.Cluster(init.Cluster.KubernetesVersion, init.Cluster.Text, info) {
		if err := one.store.Create(ctx, object); err != nil {
			return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
		}
	}
	if err := one.writeControlPlane(h, endpoint, true); err != nil {
		return err
	}
	return one.addHost(ctx, h, c.etcdID())
}

// newCluster creates a cluster without hosts. It replaces a cluster with the same CA that failed
// to start.
func (c *Clusters) newCluster(all *authorityPair) *cluster {
	group := "cluster-" + c.etcdID()
	c.manager.AddResourceGroup(group)
	one := &cluster{
		all: c, group: group, store: c.manager.GetResourceGroup(group).GetClient(), hosts: map[string]*host{},
		authority: all.cluster, etcdAuthority: all.etcd,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clusters[all.cluster.Hash()] = one
	return one
}

// join makes a host a member of the cluster that it finds at an endpoint.
func (c *Clusters) join(ctx context.Context, h *host, job *kubeadm.Job) error {
	at, err := c.discover(ctx, h, job.Join)
	if err != nil {
		return err
	}
	c.mu.Lock()
	one := c.clusters[at.hash]
	c.mu.Unlock()
	if one == nil {
		return errors.New("the cluster is none of this simulation")
	}
	all := &authorityPair{cluster: one.authority, etcd: one.etcdAuthority}
	if job.Join.Local != nil {
		if all, err = authorities(job); err != nil {
			return err
		}
		if all.cluster.Hash() != at.hash {
			return errors.New("the host has another certificate authority than the cluster")
		}
	}
	if err := h.prepare(job.Join.Node, job.Join.Local, at.configuration, all); err != nil {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.members.quorum() {
		return errors.New("etcdserver: request timed out")
	}
	var etcdCluster string
	if h.local != nil {
		if etcdCluster, err = one.etcdCluster(ctx); err != nil {
			return err
		}
		err = one.writeControlPlane(h, "https://"+at.configuration.ControlPlaneEndpoint, false)
	} else {
		err = one.writeWorker(h, at.server)
	}
	if err != nil {
		return err
	}
	return one.addHost(ctx, h, etcdCluster)
}

// authorityPair holds the certificate authorities of a cluster.
type authorityPair struct{ cluster, etcd *certs.Authority }

// authorities reads the certificate authorities in the bootstrap data of a control-plane host.
func authorities(job *kubeadm.Job) (*authorityPair, error) {
	read := func(name string) (*certs.Authority, error) {
		certificate, err := job.File(pkiFolder + name + ".crt")
		if err != nil {
			return nil, err
		}
		key, err := job.File(pkiFolder + name + ".key")
		if err != nil {
			return nil, err
		}
		return certs.Parse(certificate, key)
	}
	cluster, err := read("ca")
	if err != nil {
		return nil, err
	}
	etcd, err := read("etcd/ca")
	if err != nil {
		return nil, err
	}
	return &authorityPair{cluster: cluster, etcd: etcd}, nil
}

// prepare determines the host's state after the bootstrap. at is nil for a worker.
func (h *host) prepare(node kubeadm.Node, at *kubeadm.Local, configuration kubeadm.Cluster, all *authorityPair) error {
	h.kubelet = objects.Kubelet{
		Name: node.Name, Version: configuration.KubernetesVersion, Address: h.machine.Address,
		ControlPlane: at != nil, Labels: node.Labels, Taints: node.Taints,
	}
	if at == nil {
		return nil
	}
	var l local
	var err error
	if l.api, l.etcd, err = servingAddresses(h.machine, *at); err != nil {
		return err
	}
	names, addresses, err := serverNames(node.Name, l.api.Addr(), configuration)
	if err != nil {
		return err
	}
	now := h.all.o.Clock.Now()
	pair, err := all.cluster.Issue(certs.Request{
		Name: objects.APIServer, DNSNames: names, Addresses: addresses, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now)
	if err != nil {
		return err
	}
	if l.apiTLS, err = tlsConfig(pair, all.cluster, tls.VerifyClientCertIfGiven); err != nil {
		return err
	}
	pair, err = all.etcd.Issue(certs.Request{
		Name: node.Name, DNSNames: []string{node.Name, "localhost", objects.PodName(objects.Etcd, node.Name)},
		Addresses: []netip.Addr{l.etcd.Addr()},
		Usages:    []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, now)
	if err != nil {
		return err
	}
	if l.etcdTLS, err = tlsConfig(pair, all.etcd, tls.RequireAndVerifyClientCert); err != nil {
		return err
	}
	h.local = &l
	return nil
}

// serverNames returns the names in kubeadm's API server certificate (kubeadm, pkiutil).
func serverNames(node string, advertised netip.Addr, c kubeadm.Cluster) ([]string, []netip.Addr, error) {
	domain := c.Networking.DNSDomain
	if domain == "" {
		domain = "cluster.local"
	}
	names := []string{node, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain}
	addresses := []netip.Addr{advertised}
	endpoint, _, found := strings.Cut(c.ControlPlaneEndpoint, ":")
	if !found {
		endpoint = c.ControlPlaneEndpoint
	}
	for _, name := range append([]string{endpoint}, c.APIServer.CertSANs...) {
		if address, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, name)
		}
	}
	subnet := c.Networking.ServiceSubnet
	if subnet == "" {
		subnet = "10.96.0.0/12"
	}
	first, _, _ := strings.Cut(subnet, ",")
	services, err := netip.ParsePrefix(first)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the subnet of Services: %w", err)
	}
	return names, append(addresses, services.Masked().Addr().Next()), nil
}

// Remove removes a host from its cluster without the cluster's participation, as a reset does. Removing the last host
// removes the cluster.
func (c *Clusters) Remove(m fleet.Machine) error {
	c.mu.Lock()
	h := c.hosts[m.Name]
	if h == nil {
		c.mu.Unlock()
		return nil
	}
	h.power = false
	one := h.cluster
	delete(c.hosts, m.Name)
	if one != nil && c.addresses[m.Address] == one.group {
		delete(c.addresses, m.Address)
	}
	c.mu.Unlock()
	if one != nil {
		one.removeHost(h)
	}
	return removeFiles(m.Root)
}

// removeHost stops a host's servers and removes it from its cluster. Removing the last host drops
// the cluster.
func (c *cluster) removeHost(h *host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = h.apply()
	delete(c.hosts, h.machine.Name)
	if len(c.hosts) > 0 {
		c.inspect()
		return
	}
	c.drop()
}

// drop removes a cluster without hosts. The caller holds c.mu.
func (c *cluster) drop() {
	if c.nextInspection != nil {
		c.nextInspection.Stop()
	}
	c.all.mu.Lock()
	if hash := c.authority.Hash(); c.all.clusters[hash] == c {
		delete(c.all.clusters, hash)
	}
	c.all.mu.Unlock()
	c.all.manager.DeleteResourceGroup(c.group)
}
