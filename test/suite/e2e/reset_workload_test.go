//go:build e2e

package e2e

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// busyPods is a DaemonSet whose Pods make a reset difficult: they ignore SIGTERM, keep files and a
// working directory in volumes open, mount a file system that the host sees too, and publish a
// port. A drain ignores them. Hosts have only the images of Kubernetes, so the containers run
// programs of the host.
const busyPods = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: busy, namespace: default}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 600
      containers:
      - name: busy
        image: IMAGE
        imagePullPolicy: Never
        command: ["/bin/sh", "-c"]
        args:
        - |
          trap "" TERM
          mkdir -p /shared/inner && mount -t tmpfs inner /shared/inner
          cd /memory && exec 3>/disk/held
          while :; do echo running >> /disk/log; sleep 1; done
        ports: [{containerPort: 80, hostPort: 8099}]
        securityContext: {privileged: true}
        volumeMounts:
        - {name: disk, mountPath: /disk}
        - {name: memory, mountPath: /memory}
        - {name: shared, mountPath: /shared, mountPropagation: Bidirectional}
        - {name: usr, mountPath: /usr}
        - {name: bin, mountPath: /bin}
        - {name: lib, mountPath: /lib}
        - {name: lib64, mountPath: /lib64}
      volumes:
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
      - {name: shared, hostPath: {path: /var/lib/kubelet/plugins/busy, type: DirectoryOrCreate}}
      - {name: usr, hostPath: {path: /usr}}
      - {name: bin, hostPath: {path: /usr/bin}}
      - {name: lib, hostPath: {path: /usr/lib}}
      - {name: lib64, hostPath: {path: /usr/lib64}}
`

// runPods starts busyPods and waits until one runs on each node.
func (w workload) runPods(ctx context.Context) {
	GinkgoHelper()
	c := w.client(ctx)
	proxy := &appsv1.DaemonSet{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-proxy"}, proxy)).To(Succeed())
	image := proxy.Spec.Template.Spec.Containers[0].Image
	pods := &appsv1.DaemonSet{}
	Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(busyPods, "IMAGE", image)), pods)).To(Succeed())
	Expect(c.Create(ctx, pods)).To(Succeed())
	w.expectPods(ctx)
}

// expectPods waits until the pods run on both nodes.
func (w workload) expectPods(ctx context.Context) {
	GinkgoHelper()
	c := w.client(ctx)
	Eventually(func(g Gomega) {
		pods := &appsv1.DaemonSet{}
		g.Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "busy"}, pods)).To(Succeed())
		g.Expect(pods.Status.DesiredNumberScheduled).To(BeEquivalentTo(2))
		g.Expect(pods.Status.NumberReady).To(BeEquivalentTo(2))
	}).WithTimeout(resetTimeout).Should(Succeed())
}

// ignitionSpec is merged into a KubeadmConfigSpec. The spec has no fields for directories, links
// and units, so they are in the additional configuration.
const ignitionSpec = `
format: ignition
files:
- {path: /etc/ignited/greeting, owner: "root:root", permissions: "0640", content: "hello\n"}
users:
- {name: ignited, shell: /bin/bash, homeDir: /home/ignited, sshAuthorizedKeys: ["ssh-ed25519 AAAA ignited"]}
ignition:
  containerLinuxConfig:
    strict: true
    additionalConfig: |
      storage:
        directories:
        - {path: /srv/ignited, filesystem: root, mode: 0750}
        links:
        - {path: /etc/ignited-link, filesystem: root, target: /etc/ignited/greeting}
      systemd:
        units:
        - name: ignited.service
          enabled: true
          contents: |
            [Unit]
            Description=Made by Ignition
            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/bin/sh -c 'echo started > /srv/ignited/by-unit'
            [Install]
            WantedBy=multi-user.target
`

// createIgnition applies a generated cluster with bootstrap data in Ignition format.
func (w workload) createIgnition(ctx context.Context) {
	GinkgoHelper()
	var ignition map[string]any
	Expect(yaml.Unmarshal([]byte(ignitionSpec), &ignition)).To(Succeed())
	w.createWithKubeadmConfig(ctx, func(spec map[string]any) {
		maps.Copy(spec, ignition)
		// They contain only a name in Jinja, which Ignition does not support. kubeadm uses the host
		// name that the agent has set.
		delete(spec, "initConfiguration")
		delete(spec, "joinConfiguration")
	})
}

// expectIgnitionApplied checks the result of the Ignition data on both hosts.
func (w workload) expectIgnitionApplied(ctx context.Context) {
	GinkgoHelper()
	const look = `stat --format '%n %F %a %U' /etc/ignited/greeting /srv/ignited; cat /etc/ignited/greeting; readlink /etc/ignited-link
getent passwd ignited | cut -d: -f1,6,7; cat /home/ignited/.ssh/authorized_keys*/* /home/ignited/.ssh/authorized_keys 2>/dev/null
systemctl is-enabled ignited.service; systemctl is-active ignited.service; cat /srv/ignited/by-unit`
	for _, box := range []*engine.Host{w.controlPlaneBox(ctx), w.workerBox(ctx)} {
		out, err := box.Exec(ctx, "sh", "-c", look)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Split(out, "\n")).To(Equal([]string{
			"/etc/ignited/greeting regular file 640 root", "/srv/ignited directory 750 root", "hello", "/etc/ignited/greeting",
			"ignited:/home/ignited:/bin/bash", "ssh-ed25519 AAAA ignited", "enabled", "active", "started",
		}), "host %s", box.Name)
	}
}
