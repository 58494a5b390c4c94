import { describeError } from '../../errors.ts';
import { KafkaFault } from './fault.ts';
import type { Token } from './tokens.ts';

/** Signs a login to Amazon MSK with the credentials of the environment. Not part of the product: see `PACKAGE`. */
interface MskSigner {
  generateAuthToken(options: { readonly region: string }): Promise<{ token: string; expiryTime: number }>;
}

/** It brings 75 packages that nobody else needs, so whoever needs it installs it. */
const PACKAGE = 'aws-msk-iam-sasl-signer-js';
const loadSigner = async (): Promise<MskSigner> => await import('aws-msk-iam-sasl-signer-js');

/** A token for the region, which is a signed request in disguise. Rejects with LOGIN_REFUSED without the package. */
export async function signMskToken(region: string, load = loadSigner): Promise<Token> {
  const signer = await load().catch((error: unknown) => {
    const message = `KAFKA_SASL_MECHANISM is aws-msk-iam, and its package is missing: npm install ${PACKAGE}`;
    throw new KafkaFault('LOGIN_REFUSED', message, { cause: error });
  });
  try {
    const { token, expiryTime } = await signer.generateAuthToken({ region });
    return { value: token, expiresAtMs: expiryTime };
  } catch (error) {
    const message = `no login to MSK could be signed (${describeError(error)}): check KAFKA_AWS_REGION and the credentials of AWS`;
    throw new KafkaFault('UNREACHABLE', message, { cause: error });
  }
}
