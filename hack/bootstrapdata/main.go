package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
)

const join = `apiVersion: kubeadm.k8s.io/v1beta4
discovery:
  bootstrapToken:
    apiServerEndpoint: 10.0.0.10:6443
    caCertHashes:
    - sha256:0000000000000000000000000000000000000000000000000000000000000000
    token: abcdef.0123456789abcdef
kind: JoinConfiguration
nodeRegistration:
  kubeletExtraArgs:
  - name: provider-id
    value: elemental://{{ ds.meta_data.instance_id }}
  name: '{{ ds.meta_data.local_hostname }}'
`

const (
	clusterConfiguration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: test\n"
	initConfiguration    = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"
	certificate          = "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n"
)

// files use each encoding that the provider knows.
func files() []bootstrapv1.File {
	return []bootstrapv1.File{
		{Path: "/etc/kubernetes/pki/ca.crt", Owner: "root:root", Permissions: "0640", Content: certificate},
		{Path: "/etc/containerd/config.toml", Encoding: bootstrapv1.GzipBase64, Permissions: "0600", Content: "H4sIAAAAAAACAytOTS5KLQEA5eiiXAYAAAA="},
		{Path: "/etc/motd", Append: new(true), Content: "managed\n"},
		{Path: "/etc/b64", Encoding: bootstrapv1.Base64, Owner: "root:adm", Content: "aGVsbG8K"},
	}
}

// worker is what every machine gets.
func worker() cloudinit.BaseUserData {
	return cloudinit.BaseUserData{
		AdditionalFiles:  files(),
		KubeadmVerbosity: "--v 5",
		BootCommands:     []string{`echo "boot of {{ ds.meta_data.local_hostname }}" > /var/log/boot-note`, "cloud-init-per once x true"},
		PreKubeadmCommands: []string{
			`hostnamectl set-hostname "{{ ds.meta_data.hostname }}"`,
			`printf '%s\n' "it's \"quoted\"" && swapoff -a`,
		},
		PostKubeadmCommands: []string{"rm -f /tmp/one\nrm -f /tmp/two"},
	}
}

// controlPlane adds users, time service and disks.
func controlPlane() cloudinit.BaseUserData {
	data := worker()
	data.NTP = &bootstrapv1.NTP{Enabled: new(true), Servers: []string{"0.time.example", "1.time.example"}}
	data.Users = []bootstrapv1.User{{
		Name: "capi", Gecos: "CAPI user", Groups: "adm, sudo", HomeDir: "/home/capi", Inactive: new(false), LockPassword: new(true),
		Shell: "/bin/bash", Sudo: "ALL=(ALL) NOPASSWD:ALL", SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two"},
	}}
	data.DiskSetup = &bootstrapv1.DiskSetup{
		Partitions: []bootstrapv1.Partition{
			{Device: "/dev/sdb", TableType: "gpt", Layout: new(true)},
			{Device: "/dev/sdc", TableType: "mbr", Layout: new(true), DiskLayout: []bootstrapv1.PartitionSpec{{Percentage: 33}, {Percentage: 67, PartitionType: "8e"}}},
		},
		Filesystems: []bootstrapv1.Filesystem{{
			Label: "etcd_disk", Filesystem: "ext4", Device: "/dev/sdb", Partition: "auto", Overwrite: new(false),
			ExtraOpts: []string{"-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"},
		}},
	}
	data.Mounts = []bootstrapv1.MountPoints{{"LABEL=etcd_disk", "/var/lib/etcddisk"}, {"tmpfs", "/var/scratch", "tmpfs", "size=64m", "0", "0"}}
	return data
}

// ignitionFiles leave out what the provider can't turn into Ignition.
func ignitionFiles() []bootstrapv1.File {
	return []bootstrapv1.File{
		{Path: "/etc/kubernetes/pki/ca.crt", Owner: "root:root", Permissions: "0640", Content: certificate},
		{Path: "/etc/b64", Encoding: bootstrapv1.Base64, Owner: "root:adm", Permissions: "0644", Content: "aGVsbG8K"},
	}
}

// additional is what users add by hand.
const additional = `systemd:
  units:
  - name: kubeadm.service
    dropins:
    - name: 10-after.conf
      contents: |
        [Unit]
        After=containerd.service
storage:
  files:
  - path: /etc/sysctl.d/90-edge.conf
    contents:
      inline: |
        vm.max_map_count=262144
`

func ignitionSpec() *bootstrapv1.IgnitionSpec {
	return &bootstrapv1.IgnitionSpec{ContainerLinuxConfig: bootstrapv1.ContainerLinuxConfig{AdditionalConfig: additional}}
}

// ignitionBase is rendered without disks, which the agent refuses; commands take
// the place of jinja there.
func ignitionBase() cloudinit.BaseUserData {
	data := controlPlane()
	data.AdditionalFiles, data.BootCommands, data.DiskSetup, data.Mounts = ignitionFiles(), nil, nil, nil
	data.PreKubeadmCommands = []string{"envsubst < /etc/kubeadm.yml > /etc/kubeadm.yml.tmp", "mv /etc/kubeadm.yml.tmp /etc/kubeadm.yml"}
	return data
}

func render() (map[string][]byte, error) {
	out := map[string][]byte{}
	var err error
	if out["cabpk-init.yaml"], err = cloudinit.NewInitControlPlane(&cloudinit.ControlPlaneInput{
		BaseUserData: controlPlane(), ClusterConfiguration: clusterConfiguration, InitConfiguration: initConfiguration,
	}); err != nil {
		return nil, fmt.Errorf("rendering the first control plane machine: %w", err)
	}
	if out["cabpk-join.yaml"], err = cloudinit.NewJoinControlPlane(&cloudinit.ControlPlaneJoinInput{BaseUserData: controlPlane(), JoinConfiguration: join}); err != nil {
		return nil, fmt.Errorf("rendering a further control plane machine: %w", err)
	}
	if out["cabpk-worker.yaml"], err = cloudinit.NewNode(&cloudinit.NodeInput{BaseUserData: worker(), JoinConfiguration: join}); err != nil {
		return nil, fmt.Errorf("rendering a worker: %w", err)
	}
	if out["cabpk-init.ign"], _, err = ignition.NewInitControlPlane(&ignition.ControlPlaneInput{
		ControlPlaneInput: &cloudinit.ControlPlaneInput{
			BaseUserData: ignitionBase(), ClusterConfiguration: clusterConfiguration, InitConfiguration: initConfiguration,
		},
		Ignition: ignitionSpec(),
	}); err != nil {
		return nil, fmt.Errorf("rendering the first control plane machine as Ignition: %w", err)
	}
	data := ignitionBase()
	data.NTP, data.Users = nil, nil
	if out["cabpk-worker.ign"], _, err = ignition.NewNode(&ignition.NodeInput{NodeInput: &cloudinit.NodeInput{BaseUserData: data, JoinConfiguration: join}}); err != nil {
		return nil, fmt.Errorf("rendering a worker as Ignition: %w", err)
	}
	data = ignitionBase()
	data.DiskSetup = controlPlane().DiskSetup
	data.DiskSetup.Filesystems[0].Overwrite = new(true)
	if out["cabpk-disks.ign"], _, err = ignition.NewNode(&ignition.NodeInput{NodeInput: &cloudinit.NodeInput{BaseUserData: data, JoinConfiguration: join}}); err != nil {
		return nil, fmt.Errorf("rendering a machine with disks as Ignition: %w", err)
	}
	return out, nil
}

func run(dir string) error {
	documents, err := render()
	if err != nil {
		return err
	}
	for name, text := range documents {
		if filepath.Ext(name) == ".ign" {
			// Indented for those who read it; the provider writes one line.
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, text, "", "  "); err != nil {
				return fmt.Errorf("formatting %s: %w", name, err)
			}
			text = append(pretty.Bytes(), '\n')
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("writing bootstrap data: %w", err)
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bootstrapdata DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
