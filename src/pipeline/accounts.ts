import { type DebtorSpan, EVERY_TOPIC, topicHash } from '../codec/request-position.ts';
import { hasRoom } from '../core/memoize.ts';
import { type Accepted, BAD_RECORDS, type Intake, UNKNOWN_SCHEMAS } from './intake.ts';

/** How much of a worker's time an account may use while others are served. */
export interface DebtRate {
  /** Microseconds of the worker's time, for each millisecond: above 0. */
  readonly usPerMs: number;
  /** So many microseconds more are allowed at once. */
  readonly burstUs: number;
}

export interface AccountsOptions {
  readonly rate: DebtRate;
  readonly monotonicMs: () => number;
  /**
   * Whose account pays for requests to a reply topic: equal names for topics that pay together. Mostly that is what the
   * names of these begin with. Undefined for a topic that is not known to exist.
   */
  readonly accountOf: (replyTopic: string) => string | undefined;
  /** A request waits since this account is in debt. */
  readonly onWaits: (account: string) => void;
}

/** Who pays for a request: an account, and how a committed position names the reply topics of that. */
export interface Payer {
  readonly account: Account;
  readonly replyTopic: string;
  readonly named: Pick<DebtorSpan, 'topic' | 'prefix'>;
}

/** While so many accounts have debts, all further topics share the account of the unknown ones. */
const MAX_ACCOUNTS = 10_000;
/** Anybody can make up the name of a reply topic, so what names topics that nobody has pays together. */
const UNKNOWN_TOPICS = 'unknown topics';
/** Accounts behind which nobody can be named, so that no debtor waits for them. */
const NOBODY: readonly string[] = [BAD_RECORDS, UNKNOWN_SCHEMAS, UNKNOWN_TOPICS];
/** A debt lasts at most so many bursts, so that a flood is forgiven soon after its end. */
const MAX_BURSTS = 8;
/** Others are expected for so long after the last of their requests. */
const OTHERS_EXPECTED_MS = 10_000;
/** Quotas may change, and with them who pays for a topic. */
const PAYERS_KEPT_MS = 1_000;
const LOOKS_WITHOUT_CLOCK = 500;

/**
 * What each requester of a worker has cost lately. A debt is time of the worker that was used and not yet paid off,
 * which happens at a fixed rate, a share of the worker. An account in debt has used more than its share; whoever asks
 * decides what waits for that.
 *
 * Kafka does not name the sender of a record. So the account is that of the reply topic, or of the quota that covers
 * it. Records that are no requests have one account together, and so have requests for topics that are not known to
 * exist.
 */
export class Accounts {
  readonly #options: AccountsOptions;
  readonly #accounts = new Map<string, Account>();
  /** By reply topic. */
  #payers = new Map<string, Payer>();
  #payersUntilMs = Number.NEGATIVE_INFINITY;
  #last: { readonly replyTopic: string; readonly payer: Payer; left: number } | undefined;
  /** The two accounts of requests out of debt that were charged last: one of them is another one than any that asks. */
  readonly #others: { account: Account; atMs: number }[] = [];

  constructor(options: AccountsOptions) {
    this.#options = options;
  }

  payerOf(replyTopic: string): Payer {
    // Reading the clock for each request would take longer than all else here.
    if (this.#last?.replyTopic === replyTopic && this.#last.left > 0) {
      this.#last.left -= 1;
      return this.#last.payer;
    }
    const nowMs = this.#options.monotonicMs();
    if (nowMs >= this.#payersUntilMs || this.#payers.size >= MAX_ACCOUNTS) {
      this.#payers = new Map();
      this.#payersUntilMs = nowMs + PAYERS_KEPT_MS;
    }
    const payer = this.#payers.get(replyTopic) ?? this.#findPayer(replyTopic, nowMs);
    if (payer.account.name === UNKNOWN_TOPICS) return payer; // one that exists is known soon
    this.#payers.set(replyTopic, payer);
    this.#last = { replyTopic, payer, left: LOOKS_WITHOUT_CLOCK };
    return payer;
  }

  /** Charges an account for work of so many microseconds. */
  charge({ account }: Payer, us: number): void {
    const nowMs = this.#options.monotonicMs();
    account.charge(us, nowMs);
    if (NOBODY.includes(account.name) || (account.wasInDebt && account.isInDebt(nowMs))) return;
    const known = this.#others.find((other) => other.account === account);
    if (known !== undefined) known.atMs = nowMs;
    else {
      this.#others.unshift({ account, atMs: nowMs });
      this.#others.splice(2);
    }
  }

  /** Whether a request has to wait for others: its account is in debt, and others are served that are not. */
  mustWait({ account }: Payer): boolean {
    if (!account.wasInDebt) return false;
    const nowMs = this.#options.monotonicMs();
    if (!account.isInDebt(nowMs)) return false;
    return this.#others.some((other) => other.account !== account && nowMs - other.atMs < OTHERS_EXPECTED_MS);
  }

  /** A request of the payer waits. */
  waits({ account }: Payer): void {
    this.#options.onWaits(account.name);
  }

  #findPayer(replyTopic: string, nowMs: number): Payer {
    const own = NOBODY.includes(replyTopic) ? replyTopic : this.#options.accountOf(replyTopic);
    const account = this.#accountNamed(own ?? UNKNOWN_TOPICS, nowMs);
    const { name } = account;
    const isOfMany = name === UNKNOWN_TOPICS;
    const prefix = replyTopic.startsWith(name) && name !== replyTopic ? name.length : 0;
    // Named when it is needed: few requests wait, and a hash takes longer than all else here.
    return {
      account,
      replyTopic,
      get named() {
        return { topic: isOfMany ? EVERY_TOPIC : topicHash(prefix > 0 ? name : replyTopic), prefix };
      },
    };
  }

  #accountNamed(name: string, nowMs: number): Account {
    const known = this.#accounts.get(name);
    if (known !== undefined) return known;
    const hasOneMore = hasRoom(this.#accounts, MAX_ACCOUNTS, (account) => !account.isPaid(nowMs));
    if (!hasOneMore && name !== UNKNOWN_TOPICS) return this.#accountNamed(UNKNOWN_TOPICS, nowMs);
    const account = new Account(name, this.#options.rate);
    this.#accounts.set(name, account);
    return account;
  }
}

/** The debt of one requester. */
class Account {
  readonly name: string;
  readonly #rate: DebtRate;
  #debtUs = 0;
  #atMs = 0;
  #isInDebt = false;

  constructor(name: string, rate: DebtRate) {
    this.name = name;
    this.#rate = rate;
  }

  charge(us: number, nowMs: number): void {
    const { burstUs } = this.#rate;
    this.#debtUs = Math.min(MAX_BURSTS * burstUs, this.#debtAt(nowMs) + us);
    if (this.#debtUs > burstUs) this.#isInDebt = true;
  }

  /** False if it can't be in debt now. */
  get wasInDebt(): boolean {
    return this.#isInDebt;
  }

  /** From where it is above one burst until it is below half of one, so that it does not change with each request. */
  isInDebt(nowMs: number): boolean {
    if (this.#isInDebt && this.#debtAt(nowMs) <= this.#rate.burstUs / 2) this.#isInDebt = false;
    return this.#isInDebt;
  }

  isPaid(nowMs: number): boolean {
    return this.#debtAt(nowMs) === 0;
  }

  #debtAt(nowMs: number): number {
    this.#debtUs = Math.max(0, this.#debtUs - this.#rate.usPerMs * (nowMs - this.#atMs));
    this.#atMs = nowMs;
    return this.#debtUs;
  }
}

/**
 * What work costs, in microseconds of a worker's time: what `bench:prices` measures, and about as much again for
 * sockets and brokers. An ordinary account uses a small part of its share.
 */
export const PRICES_US = {
  /** To read, look up, decide and answer a request among others, or to refuse it. */
  request: 20,
  /** For a record that is no request: its share of a dead letter, which brokers have to store. */
  letter: 15,
  /** For each KiB of the record beyond the first one, which may be compressed in the topic. */
  kibibyte: 5,
  /** For each 1,000 IDs that a reply lists. */
  listed: 40,
  /** To append to one more reply topic, or partition that a request names, in a part. */
  append: 100,
  /** To copy a request to its home partition. */
  forward: 20,
  /** To find a decision in the ledger, which has to be read there. */
  decision: 100,
} as const;

/** To list fewer IDs costs no more than what an ordinary request costs. */
const FEW_LISTED = 1_000;

/** The prices of a part's requests, in order. What goes to the same place as another one of the part costs less. */
export class PartPrices {
  readonly #partition: number;
  readonly #places = new Set<string>();
  /** The keys of requests whose replies list many IDs: one reply serves all that are equal. */
  readonly #listed = new Set<string>();
  #totalUs = 0;
  #last: { readonly replyTopic: string; readonly replyPartition: number | undefined } | undefined;

  constructor(partition: number) {
    this.#partition = partition;
  }

  /** The price of all that were added. */
  get totalUs(): number {
    return this.#totalUs;
  }

  /** Returns the price of one more request: known from the record alone, before anything is looked up. */
  add(intake: Intake): number {
    const us = this.#priceOf(intake);
    this.#totalUs += us;
    return us;
  }

  #priceOf(intake: Intake): number {
    const bytes = intake.record.fields?.bytes ?? 0;
    const readUs = PRICES_US.request + PRICES_US.kibibyte * Math.floor(bytes / 1_024);
    if (intake.kind === 'rejected') return readUs + PRICES_US.letter;
    const { request, home } = intake;
    if (home !== this.#partition) return readUs + PRICES_US.forward;
    return readUs + this.#listedUs(intake) + (this.#isOneMore(request) ? PRICES_US.append : 0);
  }

  #listedUs({ request: { encoding, count }, key }: Accepted): number {
    if (encoding !== 'IDS' || count < FEW_LISTED) return 0;
    const before = this.#listed.size;
    this.#listed.add(key.name);
    return this.#listed.size > before ? (PRICES_US.listed * count) / 1_000 : 0;
  }

  /** Whether no request before goes to this place; the first one of a part does not count. */
  #isOneMore({ replyTopic, replyPartition }: { replyTopic: string; replyPartition?: number | undefined }): boolean {
    const last = this.#last;
    if (last?.replyTopic === replyTopic && last.replyPartition === replyPartition) return false;
    this.#last = { replyTopic, replyPartition };
    const before = this.#places.size;
    this.#places.add(`${replyTopic} ${replyPartition}`);
    return before > 0 && this.#places.size > before;
  }
}
