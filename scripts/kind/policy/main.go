// Enforces NetworkPolicy on one node: the controller of kube-router without its routing, on iptables and ipset.
package main

import (
	"log"
	"os"
	"sync"

	"github.com/cloudnativelabs/kube-router/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	if err := enforce(); err != nil {
		log.Fatal(err)
	}
}

func enforce() error {
	access, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	settings := options.NewKubeRouterConfig()
	settings.HostnameOverride = os.Getenv("NODE_NAME")
	settings.ClusterIPCIDR = os.Getenv("SERVICE_RANGE")

	caches := informers.NewSharedInformerFactory(client, 0)
	pods := caches.Core().V1().Pods().Informer()
	namespaces := caches.Core().V1().Namespaces().Informer()
	policies := caches.Networking().V1().NetworkPolicies().Informer()
	stop := make(chan struct{})
	caches.Start(stop)
	caches.WaitForCacheSync(stop)
	var tables sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(client, settings, pods, policies, namespaces, &tables)
	if err != nil {
		return err
	}
	pods.AddEventHandler(controller.PodEventHandler)
	namespaces.AddEventHandler(controller.NamespaceEventHandler)
	policies.AddEventHandler(controller.NetworkPolicyEventHandler)

	// The controller blocks on every heartbeat until it is received.
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(heartbeats, stop, &running)
	return nil
}
