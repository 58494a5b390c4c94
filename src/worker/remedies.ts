import type { UnreadyReason } from '../core/gate.ts';

/**
 * What a reason means and what to do, in plain text for the status page. The runbook has the same sentences, with links
 * and markup; a test compares them.
 */
export const REMEDIES: Readonly<Record<UnreadyReason, { readonly meaning: string; readonly remedy: string }>> = {
  STOPPING: {
    meaning: 'The process received a stop signal. It finishes the requests in flight.',
    remedy: 'Wait. A second signal stops it immediately; its lease then expires.',
  },
  LAYOUT_EXHAUSTED: {
    meaning: 'The layout has no time left. Its timestamp field has run out, or the next ID would need bit 63.',
    remedy:
      'Move to another layout as the end of a layout describes. A new ID_SPACE may repeat old IDs, so decide first how both stay apart.',
  },
  RESTORED: {
    meaning:
      "etcd shows less than was once confirmed. A ceiling or its revision is below its witness in Kafka, or the namespace's UUID differs. Nothing is allocated on a ceiling that can't be trusted.",
    remedy:
      'After a restore or a wipe, rebuild the namespace (irreversible). If another namespace has this datacenter ID, give these workers another DATACENTER_ID: a rebuild would take the datacenter from the others. For a time that no clock ever had, the page on rebuilding has a forged witness.',
  },
  CLUSTER_CHANGED: {
    meaning:
      'The brokers belong to another Kafka cluster than the one to which etcd has bound the ledger. Nothing is decided: that cluster may lack decisions, or have them at other offsets. The index of the other cluster is kept in INDEX_DIR, in the folder kept.',
    remedy:
      'If it is the wrong cluster, correct KAFKA_BROKERS. If this one replaces it, stop all workers that still use the other one and run idalloc namespace adopt-cluster (irreversible). Waiting workers go on without a restart. Requests from before whose decisions the new ledger lacks get FORGOTTEN, and sequences go on without repeating a number.',
  },
  CLOCK_BACKWARD: {
    meaning:
      'The wall clock went back by 10 ms or more. The worker released its worker ID and stopped allocating; the next term starts above everything that was allocated under it.',
    remedy: 'Let NTP slew. The worker resumes when the clock is steady.',
  },
  CLOCK_FORWARD: {
    meaning:
      'The wall clock ran ahead of the monotonic clock by more than 1 s. It was stepped forward, or the machine was suspended. The step is refused even if the clock is right now.',
    remedy: 'Let NTP slew. The worker resumes by itself.',
  },
  CLOCK_FROZEN: {
    meaning:
      'The wall clock stood still while the monotonic clock moved. Three samples in a row, 10 ms or more apart, or a whole second showed the same time.',
    remedy: 'Choose another clock source, or remove the fake.',
  },
  CLOCK_DRIFT: {
    meaning: "The median of the brokers' clocks is more than 1 s away from this worker's clock.",
    remedy: 'Fix NTP where the clock is wrong: on this machine if other workers serve, else on the brokers.',
  },
  CLOCK_AHEAD: {
    meaning:
      "Before it claimed a worker ID, the worker found its clock more than half a second ahead of the brokers'. Or it was far ahead of other holders' clocks. It raised no ceiling.",
    remedy: 'Fix the clock. The worker resumes without a restart.',
  },
  CLOCK_BEHIND: {
    meaning:
      "Before it claimed a worker ID, the worker found its clock more than half a second behind the brokers'. It claimed nothing.",
    remedy: 'Fix the clock. The worker resumes without a restart.',
  },
  ALL_CEILINGS_AHEAD: {
    meaning:
      "Every free worker ID is used up to a time that is more than 35 s ahead of this worker's clock. Its clock is behind, or another one was ahead.",
    remedy:
      "If this clock is behind, fix NTP. Otherwise run fewer workers until time has passed these worker IDs' ceilings.",
  },
  POOL_EXHAUSTED: {
    meaning: 'Every worker ID of the pool is held, or the one of WORKER_ID is. The other workers serve.',
    remedy:
      'Stop surplus workers. Leases of dead holders expire within LEASE_TTL_SECONDS. A larger pool needs a new namespace: another ETCD_PREFIX and DATACENTER_ID.',
  },
  LEASE_LOST: {
    meaning:
      'The lease expired or was revoked, or another process has the worker ID. The worker drops the reservation and acquires another worker ID.',
    remedy:
      'One occurrence, after a long pause or a network cut, needs no action. Otherwise look for pauses of the process, and for cuts of the network to etcd.',
  },
  PROCESS_PAUSED: {
    meaning:
      'The process or its machine stood still: SIGSTOP, suspend, a paused container, a CPU limit. Nothing is allocated until etcd has confirmed the worker ID.',
    remedy: 'One occurrence needs no action. Otherwise raise the CPU limit, or stop the snapshots of the machine.',
  },
  LEASE_SUSPENDED: {
    meaning:
      'etcd has not confirmed the lease for ETCD_REFUSE_AFTER_MS (15 s), or did not answer after the process was paused. The worker keeps its worker ID, and resumes the term when etcd shows that nobody else had it in between.',
    remedy: 'Repair etcd, the network to it or the login in it.',
  },
  RESERVATION_EXHAUSTED: {
    meaning:
      'The reservation is used up and was not extended, because etcd or the witness topic does not confirm a new one.',
    remedy:
      'Follow detail, or repair etcd and the brokers that lead the witness topic. The worker resumes by itself, within 5 s.',
  },
  NO_IDENTITY: {
    meaning:
      'The worker holds no worker ID. It has just started, etcd does not respond, or it waits for a worker ID, which is free again up to 25 s after a clean stop, and after a crash when its lease has expired.',
    remedy: 'Wait a minute; then repair etcd, or correct ETCD_ENDPOINTS.',
  },
  KAFKA_UNAVAILABLE: {
    meaning:
      'No broker responded. If /readyz names one broker, only that one does not answer this worker: within 15 s a worker that reaches it serves its partitions, which return half a minute after it answers again. If no worker reaches it, they wait.',
    remedy: 'Repair the brokers, or the network to them. Workers resume without a restart.',
  },
  STARTING: {
    meaning: 'The process is starting. Topics are not checked, or the index is not open yet.',
    remedy: 'Wait a minute; then check the brokers, and the network to them.',
  },
  KAFKA_REFUSED: {
    meaning:
      "The brokers refuse the worker. They refuse its login, a right, its KAFKA_SESSION_TIMEOUT_MS, or a place in a KAFKA_GROUP_ID with other consumers than workers; or a broker's certificate is not trusted or has expired. Nothing is lost: requests wait, replies are retried, and IDs over HTTP are served while the reservation lasts.",
    remedy:
      'Follow detail. The worker resumes about a second after a secret file was replaced, and a few seconds after a right was granted or a foreign consumer has left; only a changed variable needs a restart. Logins has the order in which to replace secrets. Keep other consumers out of the group.',
  },
  LEDGER_UNREADABLE: {
    meaning:
      "A ledger partition has an entry that no worker wrote, or that this version can't read. The partition stops; /readyz is 503 on its owner and standbys, and names it with the cause. A rolling upgrade halts. Other partitions and IDs over HTTP are served, but a load balancer that probes /readyz may have no worker left: let it probe /readyz/api (in Kubernetes, use a separate Service with publishNotReadyAddresses).",
    remedy:
      "Revoke another program's right to write. If a newer version wrote it, update this one; if an upgrade halted and the former version reads the ledger, go back. The entry stays until retention removes it, or until you trim the partition up to after that offset with kafka-delete-records. Trimming is irreversible: requests whose decisions may be gone then get FORGOTTEN.",
  },
  LEDGER_COPIED: {
    meaning:
      'A ledger partition has its entries at other offsets than before. A tool copied them there, after retention had removed some or with some of them twice. The partition stops, since numbers of sequences count only at their own offsets; others are served. /readyz names it.',
    remedy:
      'Put the original log back. Or adopt the copy with idalloc namespace adopt-cluster: requests get the batches that it has, unknown ones from before and those with numbers get FORGOTTEN, and sequences go on without repeating a number.',
  },
  INDEX_RESTORING: {
    meaning:
      'A partition waits while its copy of the index is restored from the ledger. Other partitions and IDs over HTTP are served. This is rare: all copies of the partition were lost, INDEX_STANDBYS is 0, or the disk has failed: the log has ledger index was discarded with the cause.',
    remedy:
      "Wait. If it takes longer than the ledger's size explains, look at the brokers, and at the disk of INDEX_DIR.",
  },
  GROUP_JOINING: {
    meaning:
      "The gate is open, but the worker is not a member of the request group. It has just started, or the group's coordinator does not respond. IDs over HTTP are served.",
    remedy:
      'Wait: a coordinator that has just started loads its groups first. Then repair the brokers or grant the right.',
  },
  STANDBY_RESTORING: {
    meaning:
      'Only /readyz/copies has it: the worker serves, but the standby copies that it was given at its start are not complete. If the next worker stopped now, a partition could lose its last copy.',
    remedy:
      "Wait before you stop another worker. If it takes longer than the ledger's size explains, look at the brokers, and at the disk of INDEX_DIR.",
  },
};
